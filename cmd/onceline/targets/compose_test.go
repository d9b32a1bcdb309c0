package targets

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack"
	"github.com/onceline/onceline/localstack/compose"
)

// standIn starts what is embedded in the place of a service, and returns the address
// that the service has in its URL.
func standIn(t *testing.T, service string) string {
	t.Helper()
	var e localstack.Emulator
	var err error
	switch service {
	case "rabbitmq":
		e, err = localstack.StartRabbitMQ(t.Context())
	case "nats":
		e, err = localstack.StartNATS(t.Context())
	case "kafka":
		e, err = localstack.StartKafka(t.Context())
	case "localstack", "elasticmq":
		e, err = localstack.StartSQS(t.Context())
	case "pubsub":
		e, err = localstack.StartPubSub(t.Context())
	case "servicebus":
		e, err = localstack.StartServiceBus(t.Context())
	default:
		t.Fatalf("nothing is embedded for %s", service)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return e.Address()
}

// moved is a URL that leads to another address, its administration and streams too.
func moved(t *testing.T, raw, address string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if q.Has("admin") {
		q.Set("admin", address)
	}
	if q.Has("stream-port") {
		q.Set("stream-port", port)
	}
	u.Host, u.RawQuery = address, q.Encode()
	return u.String()
}

// TestCompose asks each target of docker-compose.yml, with what is embedded in the
// services' places: its URL is understood, faults strike by the proxies in front of
// it, and the answers are the declared ones.
func TestCompose(t *testing.T) {
	t.Parallel()
	claims := []boundary.Claim{boundary.PublishDedupLostResponse, boundary.PublishDedupNewProducer, boundary.SettleLostResponse, boundary.PublishDedupScope}
	var globs []string
	for _, c := range claims {
		globs = append(globs, string(c))
	}
	for _, e := range compose.Endpoints() {
		if e.Name == "" {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			e.URL = moved(t, e.URL, standIn(t, e.Service))
			target := composeTarget(e)
			target.Deviations = nil // of what the model stands in for
			r, err := conformance.Run(t.Context(), target, conformance.Options{Claims: globs, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			got := r.Targets[0]
			if got.Error != "" || got.Absent != "" || len(got.Findings) != len(claims) {
				t.Fatalf("%s%s: %d findings", got.Error, got.Absent, len(got.Findings))
			}
			for _, f := range got.Findings {
				switch {
				case e.Service == "servicebus" && f.Claim != string(boundary.PublishDedupScope):
					if f.Verdict != report.NotVerifiable {
						t.Errorf("%s: %s: nothing can strike there", f.Claim, f.Verdict)
					}
				case f.Verdict != report.Equal && f.Verdict != report.NotApplicable:
					t.Errorf("%s: %s: observed %q, declared %q: %s", f.Claim, f.Verdict, f.Observed, f.Declared, f.Reason)
				}
			}
			if target.Real && e.Service != "kafka" && got.Versions[target.Broker] == "" {
				t.Errorf("no version was found: %v", got.Versions)
			}
		})
	}
}

// TestComposeIsAbsent: a service that isn't up is no failure, and the report says
// what brings it up.
func TestComposeIsAbsent(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	for _, e := range compose.Endpoints() {
		if e.Name == "" {
			continue
		}
		e.URL = moved(t, e.URL, at)
		_, err := composeTarget(e).Start(t.Context())
		if !errors.Is(err, conformance.ErrAbsent) || !strings.HasSuffix(err.Error(), "docker compose --profile "+e.Service+" up --wait") {
			t.Errorf("%s: %v", e.Name, err)
		}
	}
}

// TestComposeTargets: the report tells the targets apart, and says of each what it
// is like.
func TestComposeTargets(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	embedded := Boundaries()
	for _, target := range Compose() {
		if seen[target.Name] || !strings.HasSuffix(target.Name, "-compose") || target.Kind != report.KindLocal {
			t.Errorf("%s, %s", target.Name, target.Kind)
		}
		seen[target.Name] = true
		if _, ok := embedded[target.Like]; !ok {
			t.Errorf("%s is like %q, which is no embedded target", target.Name, target.Like)
		}
		vendor := map[string]bool{"rabbitmq": true, "nats": true, "kafka": true}[target.Broker]
		if target.Real != vendor {
			t.Errorf("%s: real %v", target.Name, target.Real)
		}
		if target.Lease+target.Session == 0 {
			t.Errorf("%s: neither lease nor session", target.Name)
		}
	}
	if len(seen) < 15 {
		t.Errorf("%d targets", len(seen))
	}
}

func TestFrontable(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{
		"nats://127.0.0.1:4222":                                  true,
		"nats://user:secret@localhost:4222":                      true,
		"nats://[::1]:4222":                                      true,
		"nats://127.0.0.1":                                       false, // the adapter knows the port
		"nats+tls://127.0.0.1:4222":                              true,
		"nats://10.0.0.1:4222":                                   false,
		"nats://broker:4222":                                     false,
		"kafka://127.0.0.1:9092,127.0.0.1:9093/?mode=share":      true,
		"kafka://127.0.0.1:9092,10.0.0.1:9093":                   false,
		"rabbitmq://127.0.0.1:5672/?queue=stream":                true,
		"rabbitmq://127.0.0.1:5672,127.0.0.1:5673/?queue=stream": false,
		"rabbitmq://127.0.0.1:5672,127.0.0.1:5673/":              true,
		"sqs://":                               false,
		"sqs://127.0.0.1:4566/?anonymous=true": true,
		"servicebus://k:v@127.0.0.1:5673/?admin=127.0.0.1:5673": false, // which of the two?
		"pubsub://127.0.0.1:8085/project?exactly-once=true":     true,
	} {
		if got := frontable(raw); got != want {
			t.Errorf("%s: %v", raw, got)
		}
	}
}

func TestPlaintext(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{
		"nats://127.0.0.1:4222":                          true,
		"nats+tls://127.0.0.1:4222":                      false,
		"kafka://127.0.0.1:9092":                         true,
		"kafka://127.0.0.1:9092/?tls=true":               false,
		"kafka://127.0.0.1:9092/?tls=false":              true,
		"kafka://127.0.0.1:9092/?ca=x":                   false,
		"rabbitmq://127.0.0.1:5672/?server-name=rabbit":  false,
		"pubsub://127.0.0.1:8085/project?tls=nonsense":   false,
		"pubsub://127.0.0.1:8085/project?exactly-once=1": true,
	} {
		if got := plaintext(raw); got != want {
			t.Errorf("%s: %v", raw, got)
		}
	}
}

// TestTLSTarget: a broker that wants TLS can be silenced in the suite's probes though
// nobody looks into what it says; faults that strike operations are not verifiable.
func TestTLSTarget(t *testing.T) {
	t.Parallel()
	m, err := localstack.StartRabbitMQ(t.Context())
	closing(t, m, err)
	g := newGate(t)
	target, err := ByURL(fmt.Sprintf("rabbitmq+tls://guest:guest@%s/?ca=%s", g.passAt(t, loopback, m.Address()), url.QueryEscape(g.ca)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := conformance.Run(t.Context(), target, conformance.Options{Seed: 1, Claims: []string{
		string(boundary.PublishHalfOpen), string(boundary.DeliverHalfOpen), string(boundary.SettleLostResponse)}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Targets[0]; got.Error != "" || len(got.Findings) != 3 {
		t.Fatalf("%d findings: %s", len(got.Findings), got.Error)
	}
	for _, f := range r.Targets[0].Findings {
		want := report.Equal
		if f.Claim == string(boundary.SettleLostResponse) {
			want = report.NotVerifiable
		}
		if f.Verdict != want {
			t.Errorf("%s: %s: observed %q, declared %q: %s", f.Claim, f.Verdict, f.Observed, f.Declared, f.Reason)
		}
	}
}
