package nats

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/onceline/onceline/broker"
)

func TestURL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	text, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	seed := filepath.Join(dir, "seed")
	if err := os.WriteFile(seed, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for raw, servers := range map[string]string{
		"nats://127.0.0.1":        "nats://127.0.0.1:4222",
		"nats://a:1,b:2,c":        "nats://a:1 nats://b:2 nats://c:4222",
		"nats://[::1]:4222,[::2]": "nats://[::1]:4222 nats://[::2]:4222",
		"nats://u:s3cret@localhost?name=x&domain=d&replicas=3&storage=memory&retention=workqueue&max-ack-pending=5&max-in-flight=9": "nats://localhost:4222",
		"nats://t0ken@127.0.0.1/":                             "nats://127.0.0.1:4222",
		"nats+tls://u:s3cret@a?cert=" + file + "&key=" + file: "nats://a:4222",
		"nats://u:s3cret@a?tls=true&ca=" + file:               "nats://a:4222",
		"nats://u:s3cret@a?insecure-credentials=true":         "nats://a:4222",
		"nats://localhost?nkey=" + seed:                       "nats://localhost:4222",
		"nats://localhost?creds=" + file:                      "nats://localhost:4222",
		"nats://a?storage=file&retention=limits":              "nats://a:4222",
		"nats://a?retention=interest":                         "nats://a:4222",
		"nats://a?atomic-batches=true":                        "nats://a:4222",
	} {
		u, err := parse(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		got, err := parseTarget(u)
		if err != nil || strings.Join(got.servers, " ") != servers {
			t.Errorf("%s: %v, %v; want %s", raw, got, err, servers)
		}
	}
	for raw, part := range map[string]string{
		"nats://a?colour=s3cret":                           `"colour"`,
		"nats://a?replicas=s3cret":                         `"replicas"`,
		"nats://a?replicas=9":                              `"replicas"`,
		"nats://a?storage=s3cret":                          `"storage"`,
		"nats://a?retention=sometimes":                     `"retention"`,
		"nats://a?tls=s3cret":                              `"tls"`,
		"nats://a?atomic-batches=s3cret":                   `"atomic-batches"`,
		"nats+tls://a?tls=false":                           `"tls"`,
		"nats://a?name=":                                   `"name"`,
		"nats://a?name=a&name=s3cret":                      `"name"`,
		"nats://a?domain=s3.cret":                          `"domain"`,
		"nats://a?max-ack-pending=0":                       `"max-ack-pending"`,
		"nats://a?max-in-flight=0":                         `"max-in-flight"`,
		"nats://a?cert=" + file:                            "need each other",
		"nats://localhost?creds=" + file + "&nkey=" + seed: "exclude",
		"nats://a?nkey=" + file:                            `"nkey"`,
		"nats://a?ca=" + filepath.Join(dir, "none"):        `"ca"`,
		"nats://a/s3cret":                                  "path",
		"nats://a#s3cret":                                  "fragment",
		"nats://a:99999":                                   "port",
		"nats://a:,b":                                      "host or port",
		"nats://":                                          "host or port",
		"nats://a,,b":                                      "host or port",
		"nats://u:s3cret@a":                                "plaintext",
		"nats://u:s3cret@127.0.0.1,a":                      "plaintext",
		"nats://s3cret@a":                                  "plaintext",
		"nats://a?creds=" + file:                           "plaintext",
		"nats://a?%zz=s3cret":                              "parameters",
		"kafka://a":                                        "scheme",
		"s3cret":                                           "URL",
		"nats://s3cret%zz@a":                               "URL",
	} {
		u, err := parse(raw)
		if err == nil {
			_, err = parseTarget(u)
		}
		if !errors.Is(err, broker.ErrInvalid) || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", raw, err, part)
		}
	}
	if s := broker.Schemes(); !slices.Contains(s, "nats") || !slices.Contains(s, "nats+tls") {
		t.Errorf("schemes %v", s)
	}
}

func TestOpenByURL(t *testing.T) {
	t.Parallel()
	host := strings.TrimPrefix(shared.ClientURL(), "nats://")
	c, err := broker.Open(t.Context(), "nats://127.0.0.1:1,"+host+"?name=test")
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, c)
	nc := client(t, c)
	if nc.Opts.Name != "test" || nc.Opts.ReconnectBufSize != -1 || nc.Opts.MaxReconnect != -1 {
		t.Errorf("client options: name %q, buffer %d, reconnects %d", nc.Opts.Name, nc.Opts.ReconnectBufSize, nc.Opts.MaxReconnect)
	}
	if _, err := broker.Open(t.Context(), "nats://"+host+"?colour=red"); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("unknown parameter: %v", err)
	}
}

// Credentials are used, and refused ones are an error of their own that shows
// none of them.
func TestCredentials(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, Username: "u", Password: "s3cret", NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(5 * time.Second) {
		t.Fatal("not ready")
	}
	host := s.Addr().String()
	closing(t, dialTo(t, "nats://u:s3cret@"+host))
	for _, bad := range []string{"nats://u:wr0ng@", "nats://wr0ng@", "nats://"} {
		_, err := Dial(t.Context(), bad+host)
		if !errors.Is(err, broker.ErrUnauthorized) || strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// Dial obeys its context, whether nobody listens, or somebody listens and says
// nothing.
func TestDialContext(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err = Dial(ctx, "nats://"+l.Addr().String())
	wantErr(t, err, broker.ErrUnavailable, context.DeadlineExceeded)
	if took := time.Since(begin); took > time.Second {
		t.Errorf("took %v", took)
	}
	_, err = Dial(ctx, "nats://"+l.Addr().String())
	wantErr(t, err, broker.ErrUnavailable, context.DeadlineExceeded)
	_, err = Dial(t.Context(), "nats://127.0.0.1:1")
	wantErr(t, err, broker.ErrUnavailable)
}

func TestOptionErrors(t *testing.T) {
	t.Parallel()
	for _, o := range []Option{Replicas(0), Replicas(6), MaxAckPending(0), MaxInFlight(0), Domain("a.b"), Domain(""), Logger(nil)} {
		if _, err := Dial(t.Context(), shared.ClientURL(), o); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%v", err)
		}
	}
}
