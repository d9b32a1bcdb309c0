package servicebus_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"
	"github.com/onceline/onceline/localstack/servicebus"
)

func unauthorized(err error) bool {
	var e *azservicebus.Error
	return errors.As(err, &e) && e.Code == azservicebus.CodeUnauthorizedAccess
}

// TestKeys: with a key configured, tokens that it did not sign are refused, by AMQP
// and by HTTP, and links need one.
func TestKeys(t *testing.T) {
	ctx := t.Context()
	s, good := start(t, servicebus.SharedAccessKey("k", "a2V5"))
	create(t, s, "q", servicebus.QueueProperties{})
	send(t, must(dial(t, good).NewSender("q", nil))(t), message("a", "x"))
	for name, bad := range map[string]string{
		"wrong key": strings.Replace(good, "a2V5", "b3RoZXI=", 1), "wrong name": strings.Replace(good, "KeyName=k", "KeyName=other", 1),
	} {
		if err := must(dial(t, bad).NewSender("q", nil))(t).SendMessage(ctx, message("b", "x"), nil); !unauthorized(err) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := adminClient(t, bad).CreateQueue(ctx, "made", nil); status(err) != http.StatusUnauthorized {
			t.Errorf("%s by HTTP: %v", name, err)
		}
	}
	must(adminClient(t, good).CreateQueue(ctx, "made", nil))(t)

	host := strings.TrimPrefix(strings.Split(good, ";")[0], "Endpoint=sb://")
	later, before := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	for name, c := range map[string]struct {
		token string
		ok    bool
	}{
		"for the queue": {signed("amqp://"+host+"/q", later), true}, "for the namespace": {signed(host, later), true},
		"for another queue": {signed("amqp://"+host+"/made", later), false}, "expired": {signed("amqp://"+host+"/q", before), false},
	} {
		client := must(azservicebus.NewClientFromConnectionString("Endpoint=sb://"+host+";SharedAccessSignature="+c.token, &azservicebus.ClientOptions{
			RetryOptions: azservicebus.RetryOptions{MaxRetries: -1},
			NewWebSocketConn: func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
				return net.Dial("tcp", host)
			}}))(t)
		err := must(client.NewSender("q", nil))(t).SendMessage(ctx, message(name, "x"), nil)
		if (err == nil) != c.ok || err != nil && !unauthorized(err) {
			t.Errorf("token %s: %v", name, err)
		}
		client.Close(ctx)
	}

	address := "amqp://" + strings.TrimPrefix(strings.Split(good, ";")[0], "Endpoint=sb://")
	for name, c := range map[string]struct {
		sasl amqp.SASLType
		ok   bool
	}{
		"PLAIN": {amqp.SASLTypePlain("k", "a2V5"), true}, "PLAIN with a wrong key": {amqp.SASLTypePlain("k", "x"), false},
		"ANONYMOUS without a token": {amqp.SASLTypeAnonymous(), false}, "EXTERNAL without a token": {amqp.SASLTypeExternal(""), false},
	} {
		err := func() error {
			conn, err := amqp.Dial(ctx, address, &amqp.ConnOptions{SASLType: c.sasl})
			if err != nil {
				return err
			}
			defer conn.Close()
			session, err := conn.NewSession(ctx, nil)
			if err != nil {
				return err
			}
			sender, err := session.NewSender(ctx, "q", nil)
			if err != nil {
				return err
			}
			return sender.Send(ctx, amqp.NewMessage([]byte("x")), nil)
		}()
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := must(s.Count("q"))(t); n.Active != 4 {
		t.Errorf("%d messages", n.Active)
	}
}

// signed is a token for a resource, signed with the key of these tests.
func signed(resource string, until time.Time) string {
	sr := strings.ToLower(url.QueryEscape(resource))
	se := strconv.FormatInt(until.Unix(), 10)
	mac := hmac.New(sha256.New, []byte("a2V5"))
	mac.Write([]byte(sr + "\n" + se))
	return "SharedAccessSignature sr=" + sr + "&sig=" + url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil))) + "&se=" + se + "&skn=k"
}

// TestMissing: the SDK tells a missing entity from other failures.
func TestMissing(t *testing.T) {
	_, connection := start(t)
	var e *azservicebus.Error
	if err := must(dial(t, connection).NewSender("missing", nil))(t).SendMessage(t.Context(), message("a", "x"), nil); !errors.As(err, &e) || e.Code != azservicebus.CodeNotFound {
		t.Errorf("sent to a missing queue: %v", err)
	}
}

func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der := must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	pool := x509.NewCertPool()
	pool.AddCert(must(x509.ParseCertificate(der))(t))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// TestTLS: AMQP and HTTP, with TLS and without, all on one port.
func TestTLS(t *testing.T) {
	ctx := t.Context()
	cert, pool := certificate(t)
	_, plain := start(t, servicebus.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}))
	config := &tls.Config{RootCAs: pool}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	a := must(admin.NewClientFromConnectionString(plain, &admin.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: &http.Client{Transport: transport}, Retry: policy.RetryOptions{MaxRetries: -1}}}))(t)
	must(a.CreateQueue(ctx, "q", nil))(t)
	must(adminClient(t, plain).CreateQueue(ctx, "p", nil))(t)
	secure := strings.TrimSuffix(plain, ";UseDevelopmentEmulator=true")
	named := &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"} // the SDK would ask for the name with the port
	c := must(azservicebus.NewClientFromConnectionString(secure, &azservicebus.ClientOptions{TLSConfig: named}))(t)
	t.Cleanup(func() { c.Close(context.WithoutCancel(ctx)) })
	send(t, must(c.NewSender("q", nil))(t), message("a", "x"))
	if m := receive(t, must(dial(t, plain).NewReceiverForQueue("q", nil))(t), 1)[0]; m.MessageID != "a" {
		t.Errorf("got %s", m.MessageID)
	}
}
