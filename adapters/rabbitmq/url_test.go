package rabbitmq

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
)

// pair writes a self-signed certificate for the loopback, good for both ends, and
// its key.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestURL(t *testing.T) {
	t.Parallel()
	cert, key := pair(t)
	for raw, want := range map[string]string{
		"rabbitmq://127.0.0.1":                                                      "[{127.0.0.1 5672}] / guest guest false quorum false",
		"rabbitmq://[::1]:7,localhost/":                                             "[{::1 7} {localhost 5672}] / guest guest false quorum false",
		"rabbitmq://u:s3%2Fcret@localhost/a%2Fb?queue=classic":                      "[{localhost 5672}] a/b u s3/cret false classic false",
		"rabbitmq+tls://u:p@host/v":                                                 "[{host 5671}] v u p true quorum false",
		"rabbitmq://u:p@host/v?insecure-credentials=true":                           "[{host 5672}] v u p false quorum false",
		"rabbitmq://host?queue=stream&stream-port=6":                                "[{host 5672}] / guest guest false stream false",
		"rabbitmq+tls://host?auth=external&cert=" + cert + "&key=" + key:            "[{host 5671}] /   true quorum true",
		"rabbitmq://u:p@host?ca=" + cert + "&server-name=x&name=me":                 "[{host 5671}] / u p true quorum false",
		"rabbitmq://host?window=9&max-in-flight=8&max-body=7&heartbeat=2s":          "[{host 5672}] / guest guest false quorum false",
		"rabbitmq://host?consumer-timeout=1m&auth=plain&insecure-credentials=false": "[{host 5672}] / guest guest false quorum false",
	} {
		u, err := parse(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		s, err := parseTarget(u)
		got := fmt.Sprintf("%v %s %s %s %t %s %t", s.hosts, s.vhost, s.user, s.password, s.tls != nil, s.kind, s.external)
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", raw, got, err, want)
		}
	}
	for raw, part := range map[string]string{
		"rabbitmq://a?colour=s3cret":                                           `"colour"`,
		"rabbitmq://a?queue=s3cret":                                            `"queue"`,
		"rabbitmq://a?window=s3cret":                                           `"window"`,
		"rabbitmq://a?window=-1":                                               `"window"`,
		"rabbitmq://a?max-in-flight=0":                                         `"max-in-flight"`,
		"rabbitmq://a?max-body=0":                                              `"max-body"`,
		"rabbitmq://a?heartbeat=1500ms":                                        `"heartbeat"`,
		"rabbitmq://a?consumer-timeout=-1s":                                    `"consumer-timeout"`,
		"rabbitmq://a?name=":                                                   `"name"`,
		"rabbitmq://a?name=a&name=s3cret":                                      `"name"`,
		"rabbitmq://a?stream-port=1":                                           `"stream-port"`,
		"rabbitmq://a?cert=" + cert:                                            "need each other",
		"rabbitmq+tls://a?cert=" + cert + "&key=" + cert:                       "not a pair",
		"rabbitmq+tls://a?ca=" + key:                                           "no certificate",
		"rabbitmq+tls://a?ca=" + key + "none":                                  `"ca"`,
		"rabbitmq+tls://a?auth=external":                                       "needs",
		"rabbitmq+tls://u:s3cret@a?auth=external&cert=" + cert + "&key=" + key: "no user",
		"rabbitmq://a?auth=s3cret":                                             `"auth"`,
		"rabbitmq://a/v/s3cret":                                                "%2F",
		"rabbitmq://a#s3cret":                                                  "fragment",
		"rabbitmq://a:99999":                                                   "port",
		"rabbitmq://":                                                          "host",
		"rabbitmq://a,,b":                                                      "host",
		"rabbitmq://u:s3cret@a":                                                "plaintext",
		"rabbitmq://u:s3cret@127.0.0.1,a":                                      "plaintext",
		"rabbitmq://:s3cret@localhost":                                         "without a user",
		"rabbitmq://a?%zz=s3cret":                                              "parameters",
		"kafka://a":                                                            "scheme",
		"s3cret":                                                               "URL",
		"rabbitmq://s3cret%zz@a":                                               "URL",
	} {
		u, err := parse(raw)
		if err == nil {
			_, err = parseTarget(u)
		}
		if !errors.Is(err, broker.ErrInvalid) || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", raw, err, part)
		}
	}
	if s := broker.Schemes(); !slices.Contains(s, "rabbitmq") || !slices.Contains(s, "rabbitmq+tls") {
		t.Errorf("schemes %v", s)
	}
}

func TestOpenByURL(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c, err := broker.Open(t.Context(), "rabbitmq://127.0.0.1:1,"+h.addr+"/?name=me")
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, c)
	var nc *amqp.Connection
	if !c.As(&nc) || nc.Config.Vhost != "/" {
		t.Error("no client")
	}
	for raw, kind := range map[string]error{
		"rabbitmq://" + h.addr + "/?colour=red": broker.ErrInvalid,
		"rabbitmq://u:s3cret@" + h.addr + "/":   broker.ErrUnauthorized,
		"rabbitmq://" + h.addr + "/nowhere":     broker.ErrUnauthorized, // 530, whether it exists or not
		"rabbitmq://127.0.0.1:1/":               broker.ErrUnavailable,
		"rabbitmq+tls://127.0.0.1:1/":           broker.ErrUnavailable,
	} {
		if _, err := broker.Open(t.Context(), raw); !errors.Is(err, kind) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// TestTLS runs the adapter over TLS with client certificates, before an emulator
// that speaks plaintext.
func TestTLS(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	cert, key := pair(t)
	certificate, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	text, err := os.ReadFile(cert)
	if err != nil || !pool.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", h.addr)
			if err != nil {
				_ = c.Close()
				continue
			}
			for _, p := range [][2]net.Conn{{c, s}, {s, c}} {
				go func() {
					_, _ = io.Copy(p[0], p[1])
					_, _ = c.Close(), s.Close()
				}()
			}
		}
	}()
	defer func() {
		_ = l.Close()
		<-ended
	}()
	parameters := "/?ca=" + cert + "&cert=" + cert + "&key=" + key
	c := dialURL(t, "rabbitmq+tls://guest:guest@"+l.Addr().String()+parameters)
	e := entity(t, c)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, messages(100, 0)...)
	wantStates(t, settle(t, r, broker.Ack, receive(t, r, 100)...), broker.Sent)
	if _, err := Dial(t.Context(), "rabbitmq+tls://guest:guest@"+l.Addr().String()+"/", quiet()); !errors.Is(err, broker.ErrUnauthorized) {
		t.Errorf("a stranger's certificate: %v", err)
	}
	// The emulator knows no EXTERNAL, and says so.
	if _, err := Dial(t.Context(), "rabbitmq+tls://"+l.Addr().String()+parameters+"&auth=external", quiet()); !errors.Is(err, broker.ErrUnauthorized) {
		t.Errorf("external: %v", err)
	}
}
