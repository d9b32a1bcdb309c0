package sqs

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceline/onceline/broker"
	localsqs "github.com/onceline/onceline/localstack/sqs"
)

func TestURL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for raw, endpoint := range map[string]string{
		"sqs://":                                "https://",
		"sqs:///?region=eu-west-1&profile=dev":  "https://",
		"sqs://k:s3cret@":                       "https://",
		"sqs://127.0.0.1:9324":                  "http://127.0.0.1:9324",
		"sqs://[::1]:9324/?anonymous=true":      "http://[::1]:9324",
		"sqs://localhost":                       "http://localhost",
		"sqs://k:s3cret@localhost:1":            "http://localhost:1",
		"sqs://localhost:1?tls=true":            "https://localhost:1",
		"sqs://sqs.example":                     "https://sqs.example",
		"sqs://k:s3cret@sqs.example?ca=" + file: "https://sqs.example",
		"sqs://sqs.example?tls=false":           "http://sqs.example",
		"sqs://a?fifo=true&high-throughput=true&pack-keys=true&wait=20s&max-requests=3": "https://a",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseTarget(u)
		if err != nil || got.endpoint() != endpoint {
			t.Errorf("%s: %v, %v; want %s", raw, got, err, endpoint)
		}
	}
	for raw, part := range map[string]string{
		"sqs://a?colour=s3cret":                    `"colour"`,
		"sqs://a?region=S3cret":                    `"region"`,
		"sqs://a?profile=":                         `"profile"`,
		"sqs://a?fifo=s3cret":                      `"fifo"`,
		"sqs://a?fifo=true&fifo=true":              `"fifo"`,
		"sqs://a?tls=s3cret":                       `"tls"`,
		"sqs://a?wait=1500ms":                      `"wait"`,
		"sqs://a?wait=21s":                         `"wait"`,
		"sqs://a?wait=s3cret":                      `"wait"`,
		"sqs://a?max-requests=0":                   `"max-requests"`,
		"sqs://a?max-requests=s3cret":              `"max-requests"`,
		"sqs://a?ca=" + filepath.Join(file, "no"):  `"ca"`,
		"sqs://localhost?ca=" + file:               "ca needs",
		"sqs://a/s3cret":                           "path",
		"sqs://a#s3cret":                           "fragment",
		"sqs://a:99999":                            "port",
		"sqs://a,b":                                "one host",
		"sqs://s3cret@a":                           "secret key",
		"sqs://:s3cret@a":                          "secret key",
		"sqs://k:s3cret@a?tls=false":               "TLS",
		"sqs://k:s3cret@a?profile=x":               "exclude",
		"sqs://localhost?anonymous=true&profile=x": "exclude",
		"sqs://?anonymous=true":                    "endpoint",
		"sqs://?tls=false":                         "endpoint",
		"sqs://a?%zz=s3cret":                       "parameters",
		"kafka://a":                                "scheme",
	} {
		u, err := url.Parse(raw)
		if err == nil {
			_, err = parseTarget(u)
		}
		if !errors.Is(err, broker.ErrInvalid) || !strings.Contains(err.Error(), part) || strings.Contains(strings.ToLower(err.Error()), "s3cret") {
			t.Errorf("%s: %v, want %q", raw, err, part)
		}
	}
	for _, raw := range []string{"sqs://s3cret%zz@a", "sqs://a?fifo=false&high-throughput=true", "sqs://sqs.example?ca=" + file} {
		if _, err := Dial(t.Context(), raw); !errors.Is(err, broker.ErrInvalid) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if !slices.Contains(broker.Schemes(), "sqs") {
		t.Errorf("schemes %v", broker.Schemes())
	}
}

func TestOptionErrors(t *testing.T) {
	for _, o := range []Option{PollWait(-1), PollWait(time.Millisecond), MaxRequests(0), Clock(nil), WithTransport(nil)} {
		if _, err := Dial(t.Context(), endpoint, o); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%v", err)
		}
	}
	if _, err := New(nil); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("New(nil): %v", err)
	}
	if _, err := New(awssqs.New(awssqs.Options{}), newTap().option()); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("a transport to New: %v", err)
	}
}

// The default chain: region and credentials of the environment, and a profile of
// a file.
func TestCredentialChain(t *testing.T) {
	dir := t.TempDir()
	credentials, config := filepath.Join(dir, "credentials"), filepath.Join(dir, "config")
	for path, text := range map[string]string{
		credentials: "[dev]\naws_access_key_id = DEVKEY\naws_secret_access_key = x\n",
		config:      "[profile dev]\nregion = eu-central-1\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", credentials)
	t.Setenv("AWS_CONFIG_FILE", config)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	host := strings.TrimPrefix(endpoint, "sqs://")
	signedBy := func(raw string) string {
		t.Helper()
		w := newTap()
		seen := ""
		w.on("GetQueueUrl", func(r *http.Request, goOn func(*http.Request) (*http.Response, error)) (*http.Response, error) {
			seen = r.Header.Get("Authorization")
			return goOn(r)
		})
		c := dialTo(t, raw, w.option())
		_, _ = c.OpenPublisher(t.Context(), "none")
		return seen
	}
	if s := signedBy("sqs://" + host + "?profile=dev"); !strings.Contains(s, "DEVKEY/") || !strings.Contains(s, "/eu-central-1/sqs/") {
		t.Errorf("profile: %q", s)
	}
	if _, err := Dial(t.Context(), "sqs://?profile=none"); !errors.Is(err, broker.ErrUnauthorized) {
		t.Errorf("a profile that isn't there: %v", err)
	}
	if _, err := Dial(t.Context(), "sqs://"); !errors.Is(err, broker.ErrInvalid) || !strings.Contains(err.Error(), "region") {
		t.Errorf("no region: %v", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "ENVKEY")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
	t.Setenv("AWS_REGION", "ap-south-1")
	if s := signedBy("sqs://" + host); !strings.Contains(s, "ENVKEY/") || !strings.Contains(s, "/ap-south-1/sqs/") {
		t.Errorf("environment: %q", s)
	}
	if s := signedBy("sqs://URLKEY:x@" + host + "?region=eu-west-1"); !strings.Contains(s, "URLKEY/") || !strings.Contains(s, "/eu-west-1/sqs/") {
		t.Errorf("URL: %q", s)
	}
	if s := signedBy("sqs://" + host + "?anonymous=true"); !strings.Contains(s, anonymousKey+"/") {
		t.Errorf("anonymous: %q", s)
	}
}

// Refused credentials are an error of their own.
func TestUnauthorized(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(localsqs.New(localsqs.RequireAccessKey("right")))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	ensure(t, dialTo(t, "sqs://right:x@"+host), broker.Entity{Topic: "q"})
	for _, raw := range []string{"sqs://wrong:s3cret@" + host, "sqs://" + host + "?anonymous=true"} {
		_, err := dialTo(t, raw).OpenPublisher(t.Context(), "q")
		if !errors.Is(err, broker.ErrUnauthorized) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// TLS with roots of one's own.
func TestTLS(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(localsqs.New())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "https://")
	roots := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(roots, pemOf(s), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := broker.Open(t.Context(), "sqs://k:x@"+host+"?tls=true&ca="+roots)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, c)
	e := entity(t)
	ensure(t, c, e)
	publish(t, publisherOf(t, c, e.Topic), message("x"))
	ack(t, *receiveOne(t, receiverOf(t, c, e.Subscription)))
	if _, err := dialTo(t, "sqs://k:x@"+host+"?tls=true").OpenPublisher(t.Context(), e.Topic); !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("without its roots: %v", err)
	}
}
