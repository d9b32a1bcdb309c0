package rabbitmq_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/localstack/rabbitmq"
	amqp "github.com/rabbitmq/amqp091-go"
)

// A real broker is asked by
//
//	ONCELINE_RABBITMQ=amqp://guest:guest@host:port/ go test -run TestTranscripts ./localstack/rabbitmq -record
//
// which writes down what it answers. Without it, the emulator is held against
// what was written down.
var record = flag.Bool("record", false, "write the transcripts of the broker at ONCELINE_RABBITMQ")

// script runs a scenario, and writes what the broker did.
type script struct {
	t    *testing.T
	url  string
	out  strings.Builder
	conn *amqp.Connection
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

// channel opens a channel, on a connection of its own if the one before has ended.
func (s *script) channel() *amqp.Channel {
	s.t.Helper()
	if s.conn == nil || s.conn.IsClosed() {
		s.connect()
	}
	ch, err := s.conn.Channel()
	if err != nil {
		s.t.Fatal(err)
	}
	return ch
}

func (s *script) connect() *amqp.Connection {
	s.t.Helper()
	c, err := amqp.Dial(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	s.conn = c
	return c
}

// err writes how a request was answered.
func (s *script) err(what string, err error) {
	var e *amqp.Error
	switch {
	case err == nil:
		s.printf("%s: ok", what)
	case errors.As(err, &e):
		s.printf("%s: %d %s", what, e.Code, e.Reason)
	default:
		s.printf("%s: %v", what, err)
	}
}

// declare declares a durable queue, and deletes it when the test ends.
func (s *script) declare(ch *amqp.Channel, name string, args amqp.Table) {
	s.t.Helper()
	_, _ = s.channel().QueueDelete(name, false, false, false)
	if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		c, err := amqp.Dial(s.url)
		if err != nil {
			return
		}
		if ch, err := c.Channel(); err == nil {
			_, _ = ch.QueueDelete(name, false, false, false)
		}
		_ = c.Close()
	})
}

// publish publishes bodies to the default exchange and waits for their confirms.
func (s *script) publish(key string, bodies ...string) {
	s.t.Helper()
	for _, body := range bodies {
		s.printf("publish %s: %s", body, s.send("", key, amqp.Publishing{Body: []byte(body), DeliveryMode: 2}))
	}
}

func (s *script) send(exchange, key string, p amqp.Publishing) string {
	s.t.Helper()
	ch := s.channel()
	if err := ch.Confirm(false); err != nil {
		s.t.Fatal(err)
	}
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	c, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, p)
	if err != nil {
		s.t.Fatal(err)
	}
	ok := c.Wait()
	answer := map[bool]string{true: "ack", false: "nack"}[ok]
	select {
	case r := <-returns:
		answer = fmt.Sprintf("return %d %s, %s", r.ReplyCode, r.ReplyText, answer)
	default:
	}
	if err := ch.Close(); err != nil {
		if e := <-closed; e != nil {
			answer = fmt.Sprintf("%d %s", e.Code, e.Reason)
		}
	}
	return answer
}

// delivery is what a consumer sees of a message, without what differs from run to
// run.
func delivery(d amqp.Delivery) string {
	return fmt.Sprintf("%s redelivered=%v exchange=%q key=%q headers=%s expiration=%q", d.Body, d.Redelivered, d.Exchange, d.RoutingKey, value(d.Headers), d.Expiration)
}

func value(v any) string {
	switch v := v.(type) {
	case amqp.Table:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if k != "time" {
				parts = append(parts, k+":"+value(v[k]))
			}
		}
		return "{" + strings.Join(parts, " ") + "}"
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, value(e))
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return fmt.Sprintf("%T(%v)", v, v)
}

// get fetches until the queue has n messages given out, or for a second.
func (s *script) get(ch *amqp.Channel, queue string) amqp.Delivery {
	s.t.Helper()
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		d, ok, err := ch.Get(queue, false)
		if err != nil {
			s.t.Fatal(err)
		}
		if ok {
			s.printf("get %s: %s", queue, delivery(d))
			return d
		}
	}
	s.printf("get %s: nothing", queue)
	return amqp.Delivery{}
}

// next waits for the next delivery to a consumer.
func (s *script) next(name string, ds <-chan amqp.Delivery) amqp.Delivery {
	s.t.Helper()
	select {
	case d, ok := <-ds:
		if !ok {
			s.printf("%s: cancelled", name)
			return amqp.Delivery{}
		}
		s.printf("%s: %s", name, delivery(d))
		return d
	case <-time.After(5 * time.Second):
		s.t.Fatalf("%s got nothing", name)
		return amqp.Delivery{}
	}
}

// closing writes with what a channel is closed.
func (s *script) closing(ch *amqp.Channel, f func()) {
	s.t.Helper()
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	f()
	select {
	case e := <-closed:
		s.err("closed", e)
	case <-time.After(5 * time.Second):
		s.t.Fatal("the channel stays open")
	}
}

// TestTranscripts holds the emulator, in the manner of the old releases, against
// what a real RabbitMQ 3.10.8 answered.
func TestTranscripts(t *testing.T) {
	url := os.Getenv("ONCELINE_RABBITMQ")
	for _, name := range slices.Sorted(maps.Keys(scripts)) {
		t.Run(name, func(t *testing.T) {
			s := &script{t: t, url: url}
			if !*record || url == "" {
				s.url = start(t, rabbitmq.WithRelease(rabbitmq.V3)).url
			}
			scripts[name](s)
			file := filepath.Join("testdata", "transcripts", name+".txt")
			if *record && url != "" {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(s.out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.out.String(); got != string(want) {
				t.Errorf("the emulator differs from the real broker:\n%s", diff(string(want), got))
			}
		})
	}
}

// diff shows the lines that differ, with what is the same around them.
func diff(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	var b strings.Builder
	for i := range max(len(w), len(g)) {
		var x, y string
		if i < len(w) {
			x = w[i]
		}
		if i < len(g) {
			y = g[i]
		}
		if x == y {
			fmt.Fprintf(&b, "  %s\n", x)
		} else {
			fmt.Fprintf(&b, "- %s\n+ %s\n", x, y)
		}
	}
	return b.String()
}
