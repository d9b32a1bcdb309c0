package kafka

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
)

func TestURLRoundTrip(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1, kfake.NumBrokers(2))
	raw := "kafka://" + strings.Join(c.ListenAddrs(), ",") + "?mode=group&start=earliest&isolation=committed&protocol=classic&session=7s&client-id=me"
	for _, open := range []func() (broker.Conn, error){
		func() (broker.Conn, error) { return Dial(ctxOf(t, 5*time.Second), raw) },
		func() (broker.Conn, error) { return broker.Open(ctxOf(t, 5*time.Second), raw) },
	} {
		conn, err := open()
		if err != nil {
			t.Fatal(err)
		}
		publish(t, openPublisher(t, conn, "t"), messages(1, 0)...)
		receive(t, openReceiver(t, conn, "t/g"), 1)
		var cl *kgo.Client
		if !conn.As(&cl) {
			t.Error("no client")
		}
		if err := conn.Close(ctxOf(t, 5*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestURLParameters(t *testing.T) {
	t.Parallel()
	u, err := url.Parse("kafka://[::1]:9?mode=group&start=latest&isolation=uncommitted&instance=i&protocol=consumer&session=9s&partitions=3&replicas=2&max-deliveries=4&dead-letter=d&ordered=true")
	if err != nil {
		t.Fatal(err)
	}
	o, err := parse(u)
	if err != nil {
		t.Fatal(err)
	}
	o.Client = nil
	want := Options{Latest: true, Uncommitted: true, Instance: "i", NextGen: true, Session: 9 * time.Second, Partitions: 3, Replicas: 2, MaxDeliveries: 4, DeadLetter: "d", Ordered: true}
	if o.Mode != want.Mode || o.Latest != want.Latest || o.Uncommitted != want.Uncommitted || o.Instance != want.Instance || o.NextGen != want.NextGen ||
		o.Session != want.Session || o.Partitions != want.Partitions || o.Replicas != want.Replicas || o.MaxDeliveries != want.MaxDeliveries ||
		o.DeadLetter != want.DeadLetter || o.Ordered != want.Ordered {
		t.Errorf("parsed %+v", o)
	}
}

func TestURLRefusals(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	for raw, want := range map[string]string{
		"kafka://h:1?nope=1&also=2":                              "also, nope",
		"kafka://h:1?mode=queue":                                 "mode",
		"kafka://h:1?mode=group&mode=share":                      "mode",
		"kafka://h:1?start=":                                     "start",
		"kafka://h:1?session=5":                                  "session",
		"kafka://h:1?session=-5s":                                "session",
		"kafka://h:1?partitions=0":                               "partitions",
		"kafka://h:1?max-deliveries=x":                           "max-deliveries",
		"kafka://h:1?dead-letter=a%20b":                          "dead-letter",
		"kafka://h:1/topic":                                      "path",
		"kafka://h:1?ca=/nosuch":                                 "ca",
		"kafka://h:1?tls=true&ca=/nosuch":                        "ca",
		"kafka://h:1?tls=true&cert=/nosuch":                      "cert",
		"kafka://h:1?sasl=plain":                                 "sasl",
		"kafka://u:" + secret + "@h:1?sasl=plain":                "credentials",
		"kafka://u:" + secret + "@127.0.0.1:1,h:1?sasl=plain":    "credentials",
		"kafka://u:" + secret + "@h:1?tls=true":                  "sasl",
		"kafka://u:" + secret + "@127.0.0.1:1?sasl=" + secret:    "sasl",
		"kafka://u:" + secret + "@127.0.0.1:1?session=" + secret: "session",
		"kafka://u:" + secret + "@127.0.0.1:1?x=%zz":             "parameters",
		"kafka://h:1?mode=share&instance=i":                      "instance",
		"kafka://h:1?max-deliveries=3":                           "dead-letter",
		"nats://h:1":                                             "kafka",
	} {
		_, err := Dial(ctxOf(t, time.Second), raw)
		if !errors.Is(err, broker.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", strings.ReplaceAll(raw, secret, "***"), err)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the error shows the secret")
		}
	}
}

func TestURLCredentials(t *testing.T) {
	t.Parallel()
	for _, mech := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		t.Run(mech, func(t *testing.T) {
			c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser(strings.ToUpper(mech), "user", "s3cr3t:@/"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			addr := c.ListenAddrs()[0]
			good := "kafka://user:" + url.QueryEscape("s3cr3t:@/") + "@" + addr + "?sasl=" + mech
			conn, err := Dial(ctxOf(t, 5*time.Second), good)
			if err != nil {
				t.Fatal(err)
			}
			publish(t, openPublisher(t, conn, "t"), messages(1, 0)...)
			if err := conn.Close(ctxOf(t, 5*time.Second)); err != nil {
				t.Fatal(err)
			}
			// This broker hangs up on a wrong password; Kafka says why.
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1})
			_, err = Dial(ctxOf(t, 5*time.Second), "kafka://user:wr0ng@"+addr+"?sasl="+mech)
			if !errors.Is(err, broker.ErrUnauthorized) || strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("wrong password: %v", err)
			}
		})
	}
}

func TestDialUnreachable(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 0)
	addr := c.ListenAddrs()[0]
	c.Close()
	begun := time.Now()
	_, err := Dial(ctxOf(t, 300*time.Millisecond), "kafka://"+addr)
	if !errors.Is(err, broker.ErrUnavailable) || time.Since(begun) > 3*time.Second {
		t.Errorf("after %v: %v", time.Since(begun), err)
	}
}
