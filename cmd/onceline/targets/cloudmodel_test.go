package targets

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack"
	"github.com/onceline/onceline/localstack/servicebus"
	"github.com/onceline/onceline/localstack/sqs"
)

const (
	cloudKey    = "AKIDONCELINE"
	cloudSecret = "c2VjcmV0LW9mLXRoZS1vbmNlbGluZS10ZXN0cw=="
)

// modelCloud is a model that is reached as a cloud is.
type modelCloud struct {
	model *localstack.Model
	url   string   // for clients
	env   []string // that they need
	wrong modelAccess
	admin string // for the test itself: plaintext on the loopback
	api   string // what deletes
	code  int    // of a refusal
}

// modelAccess are credentials that are no good.
type modelAccess struct {
	url  string
	env  []string
	says string // what the refusal shows
}

func sqsCloud(t *testing.T, query string) modelCloud {
	m, err := localstack.StartSQS(t.Context(), sqs.RequireAccessKey(cloudKey))
	closing(t, m, err)
	g := newGate(t)
	at := fmt.Sprintf("sqs://%s/?region=eu-central-1&ca=%s%s", g.pass(t, m.Address()), url.QueryEscape(g.ca), query)
	env := func(key string) []string {
		return []string{"AWS_ACCESS_KEY_ID=" + key, "AWS_SECRET_ACCESS_KEY=" + cloudSecret}
	}
	return modelCloud{model: m, url: at, env: env(cloudKey), wrong: modelAccess{at, env("AKIDOTHER"), "403"},
		admin: fmt.Sprintf("sqs://%s:x@%s/?region=eu-central-1", cloudKey, m.Address()), api: "DeleteQueue", code: 401}
}

func pubsubCloud(t *testing.T, query string) modelCloud {
	m, err := localstack.StartPubSub(t.Context())
	closing(t, m, err)
	g, a := newGate(t), newAccount(t)
	at := "pubsub://" + g.passGRPC(t, m.Address(), a) + "/onceline" + query
	// Google's SDK has no setting for a CA of one's own; Go reads the system's here.
	env := func(a account) []string {
		return []string{"SSL_CERT_FILE=" + g.ca, "GOOGLE_APPLICATION_CREDENTIALS=" + a.file, "NO_GCE_CHECK=true"}
	}
	return modelCloud{model: m, url: at, env: env(a), wrong: modelAccess{at, env(newAccount(t)), "Unauthenticated"},
		admin: m.URL(), api: "DeleteTopic", code: int(codes.PermissionDenied)}
}

func serviceBusCloud(t *testing.T, query string) modelCloud {
	m, err := localstack.StartServiceBus(t.Context(), servicebus.SharedAccessKey("verify", cloudSecret))
	closing(t, m, err)
	g := newGate(t)
	host := g.pass(t, m.Address())
	at := func(key string) string {
		return fmt.Sprintf("servicebus://verify:%s@%s/?ca=%s&admin=%s%s", url.QueryEscape(key), host, url.QueryEscape(g.ca), host, query)
	}
	return modelCloud{model: m, url: at(cloudSecret), wrong: modelAccess{at("b3RoZXI="), nil, "401"},
		admin: fmt.Sprintf("servicebus://verify:%s@%s/?admin=%s", url.QueryEscape(cloudSecret), m.Address(), m.Address()), api: "DELETE", code: 401}
}

// modelClouds are all of them, by what the suite tells apart.
var modelClouds = map[string]func(*testing.T) modelCloud{
	"sqs":                 func(t *testing.T) modelCloud { return sqsCloud(t, "") },
	"sqs-fifo":            func(t *testing.T) modelCloud { return sqsCloud(t, "&fifo=true") },
	"pubsub":              func(t *testing.T) modelCloud { return pubsubCloud(t, "") },
	"pubsub-exactly-once": func(t *testing.T) modelCloud { return pubsubCloud(t, "?exactly-once=true") },
	"servicebus":          func(t *testing.T) modelCloud { return serviceBusCloud(t, "") },
	"servicebus-sessions": func(t *testing.T) modelCloud { return serviceBusCloud(t, "&sessions=true") },
}

func closing(t *testing.T, m *localstack.Model, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// left lists what is on the model, as nobody but the test can.
func (m modelCloud) left(t *testing.T) []string {
	t.Helper()
	c, err := broker.Open(t.Context(), m.admin)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	found, err := sweeperOf(c).list(t.Context(), cloudFamily)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, one := range found {
		names = append(names, one.name)
	}
	return names
}
