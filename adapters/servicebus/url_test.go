package servicebus

import (
	"context"
	"crypto/tls"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/onceline/onceline/broker"
	emulator "github.com/onceline/onceline/localstack/servicebus"
)

func TestURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]target{
		"servicebus://orders.servicebus.windows.net":     {host: "orders.servicebus.windows.net"},
		"servicebus://Send:a%2Fb%3D@orders.example.com/": {host: "orders.example.com", keyName: "Send", key: "a/b="},
		"servicebus://127.0.0.1:5672":                    {host: "127.0.0.1:5672", plain: true},
		"servicebus://localhost":                         {host: "localhost", plain: true},
		"servicebus://[::1]:5671/?tls=true":              {host: "[::1]:5671"},
		"servicebus://k:v@localhost:1/?settle-timeout=1s&session-idle=2s&sessions=true&duplicate-detection=false&admin=127.0.0.1:80&application-id=a": {
			host: "localhost:1", keyName: "k", key: "v", plain: true},
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseTarget(u)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		o, err := collect(got.options)
		if err != nil {
			t.Fatal(err)
		}
		if u.RawQuery != "" && strings.Contains(raw, "settle") &&
			(o.settleTimeout != time.Second || o.sessionIdle != 2*time.Second || !o.sessions || !o.noDuplicates || o.adminEndpoint != "127.0.0.1:80" || o.applicationID != "a") {
			t.Errorf("%s: %+v", raw, o)
		}
		got.options = nil
		if got.host != want.host || got.key != want.key || got.keyName != want.keyName || got.plain != want.plain {
			t.Errorf("%s: %+v", raw, got)
		}
	}
}

func TestBadURLs(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"amqp://localhost", "servicebus://", "servicebus://localhost/queue", "servicebus://localhost#x", "servicebus://a,b",
		"servicebus://localhost:0", "servicebus://localhost:99999", "servicebus://secret@localhost", "servicebus://:secret@localhost",
		"servicebus://localhost?nope=secret", "servicebus://localhost?tls=secret", "servicebus://localhost?sessions=true&sessions=secret",
		"servicebus://orders.example.com?tls=false", "servicebus://localhost?ca=/secret/none", "servicebus://localhost?settle-timeout=secret",
		"servicebus://localhost?session-idle=-1s", "servicebus://localhost?admin=secret", "servicebus://localhost?admin=example.com:80",
		"servicebus://localhost?application-id=secret-that-is-much-too-long-for-it", "servicebus://k:se%3Bcret@localhost", "servicebus://localhost?%zzsecret",
	} {
		c, err := Dial(t.Context(), raw)
		if !errors.Is(err, broker.ErrInvalid) || c != nil {
			t.Errorf("%s: %v", raw, err)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows it: %v", raw, err)
		}
	}
	for _, s := range []string{"", "Endpoint=sb://h", "SharedAccessKeyName=k;SharedAccessKey=secret",
		"Endpoint=sb://example.com;SharedAccessKeyName=k;SharedAccessKey=secret;UseDevelopmentEmulator=true", "Endpoint=://secret;SharedAccessKey=secret"} {
		if c, err := FromConnectionString(s); !errors.Is(err, broker.ErrInvalid) || c != nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// The constructors lead to the same place, with the key that the service checks.
func TestConstructors(t *testing.T) {
	t.Parallel()
	n := start(t, emulator.SharedAccessKey("Send", "key/with+signs="))
	e := entity()
	n.makes(t, e)
	use := func(c broker.Conn, err error) error {
		t.Helper()
		if err != nil {
			return err
		}
		defer closing(t, c)
		p, err := c.OpenPublisher(t.Context(), e.Topic)
		if err != nil {
			return err
		}
		publish(t, p, message("x"))
		return nil
	}
	if err := use(broker.Open(t.Context(), "servicebus://Send:"+url.QueryEscape("key/with+signs=")+"@"+n.host)); err != nil {
		t.Error(err)
	}
	if err := use(FromConnectionString("Endpoint=sb://" + n.host + ";SharedAccessKeyName=Send;SharedAccessKey=key/with+signs=;UseDevelopmentEmulator=true")); err != nil {
		t.Error(err)
	}
	err := use(Dial(t.Context(), "servicebus://Send:wrong@"+n.host))
	wantErr(t, err, broker.ErrUnauthorized)
	if strings.Contains(err.Error(), "wrong@") {
		t.Errorf("%v", err)
	}
}

type credential struct{ err error }

func (c credential) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "token", ExpiresOn: time.Now().Add(time.Hour)}, c.err
}

// A token credential needs TLS, and says so when nobody gives it.
func TestCredentialAndTLS(t *testing.T) {
	t.Parallel()
	server, client := certificates(t)
	n := start(t, emulator.TLS(server))
	e := entity()
	c, err := FromCredential(n.host, credential{}, TLS(client), Clock(n.Clock()))
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, c)
	ensure(t, c, e) // over HTTPS
	publish(t, publisherOf(t, c, e.Topic), message("x"))
	ack(t, *receiveOne(t, receiverOf(t, c, e.Subscription)))
	// Without the roots there is no connection.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if c, err = FromCredential(n.host, credential{}, TLS(&tls.Config{MinVersion: tls.VersionTLS12})); err != nil {
		t.Fatal(err)
	}
	defer closing(t, c)
	if _, err := c.OpenPublisher(ctx, e.Topic); !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("an unknown authority: %v", err)
	}
	if _, err := FromCredential("sb://x/", credential{}); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("%v", err)
	}
}
