package rabbitmq_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/localstack/rabbitmq"
	amqp "github.com/rabbitmq/amqp091-go"
)

// A quorum queue bears 20 failed deliveries by default. A basic.reject counts as
// one, a lost channel too; a basic.nack doesn't (RMQ-F-14, RMQ-F-15).
func TestDeliveryLimit(t *testing.T) {
	b := start(t)
	ch := b.channel(t)
	queue(t, ch, "dead", nil)
	queue(t, ch, "q", amqp.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
	put(t, ch, "q", "x")
	for i := range 50 {
		d := fetch(t, ch, "q", "x")
		if d.Headers["x-delivery-count"] != nil || i > 0 && d.Headers["x-acquired-count"] != int64(i) || d.Redelivered != (i > 0) {
			t.Fatalf("fetch %d: redelivered=%v %v", i+1, d.Redelivered, d.Headers)
		}
		must(t, d.Nack(false, true))
	}
	for i := range 21 {
		d := fetch(t, ch, "q", "x")
		if want := int64(i); i > 0 && d.Headers["x-delivery-count"] != want {
			t.Fatalf("delivery %d has count %v", i+1, d.Headers["x-delivery-count"])
		}
		if i%2 == 0 {
			must(t, d.Reject(true))
			continue
		}
		must(t, ch.Close())
		ch = b.channel(t)
	}
	fetch(t, ch, "q", "")
	d := fetch(t, ch, "dead", "x")
	if d.Headers["x-last-death-reason"] != "delivery_limit" || d.Redelivered {
		t.Errorf("redelivered=%v %v", d.Redelivered, d.Headers)
	}
}

// Without a dead-letter exchange the message is gone; with a limit of -1 it never
// is, and what comes back by a basic.nack goes to the end.
func TestDeliveryLimitWithoutDeadLetters(t *testing.T) {
	b := start(t)
	ch := b.channel(t)
	queue(t, ch, "q", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 0})
	put(t, ch, "q", "x")
	must(t, fetch(t, ch, "q", "x").Reject(true))
	fetch(t, ch, "q", "")
	queue(t, ch, "unlimited", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": -1})
	put(t, ch, "unlimited", "1", "2")
	for range 30 {
		must(t, fetch(t, ch, "unlimited", "1").Reject(true))
	}
	must(t, fetch(t, ch, "unlimited", "1").Nack(false, true))
	fetch(t, ch, "unlimited", "2")
	fetch(t, ch, "unlimited", "1")
}

// What comes back to a quorum queue with a limit is delivered before what is new
// (RMQ-F-19).
func TestReturnsComeFirst(t *testing.T) {
	b := start(t)
	ch := b.channel(t)
	queue(t, ch, "q", amqp.Table{"x-queue-type": "quorum"})
	put(t, ch, "q", "1", "2", "3", "4")
	one, two := fetch(t, ch, "q", "1"), fetch(t, ch, "q", "2")
	must(t, two.Nack(false, true))
	must(t, one.Nack(false, true))
	for _, want := range []string{"2", "1", "3", "4"} {
		fetch(t, ch, "q", want)
	}
}

// Quorum queues order by priority; a message without one has 4 (RMQ-F-26).
func TestQuorumPriorities(t *testing.T) {
	b := start(t)
	ch := b.channel(t)
	queue(t, ch, "q", amqp.Table{"x-queue-type": "quorum"})
	must(t, ch.Confirm(false))
	for _, p := range []uint8{3, 0, 5, 40, 4} { // the client sends no priority for 0
		c, err := ch.PublishWithDeferredConfirm("", "q", true, false, amqp.Publishing{Priority: p, Body: fmt.Append(nil, p)})
		must(t, err)
		c.Wait()
	}
	for _, want := range []string{"40", "5", "0", "4", "3"} {
		fetch(t, ch, "q", want)
	}
}

// A full quorum queue goes on taking until it has said that it is full, and starts
// again when it is well below its limit (RMQ-F-27). One full queue makes a nack of
// a message that another stored (RMQ-F-05).
func TestFullQuorumQueue(t *testing.T) {
	b := start(t)
	ch := b.channel(t)
	must(t, ch.ExchangeDeclare("fan", "fanout", true, false, false, false, nil))
	queue(t, ch, "full", amqp.Table{"x-queue-type": "quorum", "x-max-length": 5, "x-overflow": "reject-publish"})
	queue(t, ch, "free", amqp.Table{"x-queue-type": "quorum"})
	must(t, ch.QueueBind("full", "", "fan", false, nil))
	must(t, ch.QueueBind("free", "", "fan", false, nil))
	must(t, ch.Confirm(false))
	publish := func() bool {
		c, err := ch.PublishWithDeferredConfirm("fan", "", true, false, amqp.Publishing{Body: []byte("x")})
		must(t, err)
		return c.Wait()
	}
	var got []bool
	for range 8 {
		got = append(got, publish())
	}
	if want := []bool{true, true, true, true, true, true, false, false}; !slices.Equal(got, want) {
		t.Errorf("confirmed: %v, want %v", got, want)
	}
	if n := messages(t, ch, "free"); n != 8 {
		t.Errorf("the other queue has %d", n)
	}
	must(t, fetch(t, ch, "full", "x").Ack(false))
	if publish() {
		t.Error("it takes messages at its limit again")
	}
	must(t, fetch(t, ch, "full", "x").Ack(false))
	if !publish() {
		t.Error("it takes none below four fifths of its limit")
	}
}

// A dead letter's history: x-death by recency, the first and the last death, and
// what a client puts there itself is not read (RMQ-F-18).
func TestDeathHeaders(t *testing.T) {
	b := start(t)
	ch := b.channel(t)
	queue(t, ch, "b", nil)
	queue(t, ch, "a", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "b"})
	must(t, ch.Confirm(false))
	c, err := ch.PublishWithDeferredConfirm("", "a", true, false, amqp.Publishing{Body: []byte("x"), Headers: amqp.Table{
		"x-death": []any{amqp.Table{"queue": "a", "reason": "rejected", "count": int64(7)}}, "x-first-death-queue": "mine",
	}})
	must(t, err)
	c.Wait()
	must(t, fetch(t, ch, "a", "x").Reject(false))
	d := fetch(t, ch, "b", "x")
	deaths, _ := d.Headers["x-death"].([]any)
	if len(deaths) != 1 {
		t.Fatalf("%v", d.Headers)
	}
	death := deaths[0].(amqp.Table)
	if death["count"] != int64(1) || death["queue"] != "a" || death["reason"] != "rejected" || d.Headers["x-first-death-queue"] != "a" || d.Headers["x-last-death-queue"] != "a" {
		t.Errorf("%v", d.Headers)
	}
	if when, ok := death["time"].(time.Time); !ok || time.Since(when).Abs() > time.Minute {
		t.Errorf("time of death is %v", death["time"])
	}
}

// A request's answer goes straight to the channel that asked (RMQ-F-35).
func TestDirectReplyTo(t *testing.T) {
	b := start(t)
	client, server := b.channel(t), b.channel(t)
	queue(t, server, "requests", nil)
	requests := subscribe(t, server, "requests", "", 1, nil)
	answers, err := client.Consume("amq.rabbitmq.reply-to", "", true, false, false, false, nil)
	must(t, err)
	for i := range 3 {
		must(t, client.Publish("", "requests", true, false, amqp.Publishing{ReplyTo: "amq.rabbitmq.reply-to", Body: fmt.Append(nil, i)}))
		r := expect(t, requests, fmt.Sprint(i))
		must(t, server.Publish("", r.ReplyTo, true, false, amqp.Publishing{Body: append([]byte("re "), r.Body...)}))
		must(t, r.Ack(false))
		expect(t, answers, fmt.Sprintf("re %d", i))
	}
	other := b.channel(t)
	closed := other.NotifyClose(make(chan *amqp.Error, 1))
	must(t, other.Publish("", "requests", false, false, amqp.Publishing{ReplyTo: "amq.rabbitmq.reply-to"}))
	if e := <-closed; e == nil || e.Reason != "PRECONDITION_FAILED - fast reply consumer does not exist" {
		t.Errorf("closed with %v", e)
	}
	must(t, client.Publish("", "requests", true, false, amqp.Publishing{ReplyTo: "amq.rabbitmq.reply-to"}))
	r := expect(t, requests, "")
	must(t, client.Close())
	returns := server.NotifyReturn(make(chan amqp.Return, 1))
	must(t, server.Publish("", r.ReplyTo, true, false, amqp.Publishing{}))
	if ret := <-returns; ret.ReplyCode != amqp.NoRoute {
		t.Errorf("an answer to nobody came back with %d", ret.ReplyCode)
	}
}

// V4 refuses queues that are neither durable nor exclusive, unless they are
// permitted (RMQ-F-25).
func TestTransientQueues(t *testing.T) {
	_, err := start(t).channel(t).QueueDeclare("q", false, false, false, false, nil)
	var e *amqp.Error
	if !errors.As(err, &e) || e.Code != amqp.InternalError || !strings.HasPrefix(e.Reason, "INTERNAL_ERROR - Feature `transient_nonexcl_queues` is deprecated.") {
		t.Errorf("declared: %v", err)
	}
	_, err = start(t).channel(t).QueueDeclare("q", false, false, true, false, nil)
	must(t, err)
	_, err = start(t, rabbitmq.PermitTransientQueues(true)).channel(t).QueueDeclare("q", false, false, false, false, nil)
	must(t, err)
	_, err = start(t, rabbitmq.WithRelease(rabbitmq.V3)).channel(t).QueueDeclare("q", false, false, false, false, nil)
	must(t, err)
}

// Users, passwords and virtual hosts are checked.
func TestLogin(t *testing.T) {
	b := start(t, rabbitmq.WithVHosts("a", "b/c"), rabbitmq.WithUsers(
		rabbitmq.User{Name: "all", Password: "p@ss:w%rd/"}, rabbitmq.User{Name: "one", Password: "x", VHosts: []string{"a"}}))
	at := addr(t, b.url)
	for _, tc := range []struct {
		user, password, vhost string
		want                  string
	}{
		{"all", "p%40ss%3Aw%25rd%2F", "/", ""},
		{"all", "p%40ss%3Aw%25rd%2F", "/b%2Fc", ""},
		{"one", "x", "/a", ""},
		{"one", "x", "/", "access to vhost '/' refused for user 'one'"},
		{"one", "x", "/b%2Fc", "access to vhost 'b/c' refused for user 'one'"},
		{"all", "p%40ss%3Aw%25rd%2F", "/nowhere", "vhost nowhere not found"},
		{"all", "wrong", "/", "username or password not allowed"},
		{"guest", "guest", "/", "username or password not allowed"},
	} {
		for _, plain := range []bool{true, false} {
			var config amqp.Config
			if !plain {
				u, err := amqp.ParseURI("amqp://" + tc.user + ":" + tc.password + "@h" + tc.vhost)
				must(t, err)
				config.SASL = []amqp.Authentication{&amqp.AMQPlainAuth{Username: u.Username, Password: u.Password}}
			}
			c, err := amqp.DialConfig("amqp://"+tc.user+":"+tc.password+"@"+at+tc.vhost, config)
			if err == nil {
				_ = c.Close()
			}
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s at %s, plain=%v: %v", tc.user, tc.vhost, plain, err)
			}
		}
	}
}

// EXTERNAL logs in by the certificate that the listener has verified.
func TestExternal(t *testing.T) {
	ca, server, client := certificates(t, "carol")
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{server}, ClientCAs: ca, ClientAuth: tls.VerifyClientCertIfGiven})
	must(t, err)
	b := start(t, rabbitmq.WithUsers(rabbitmq.User{Name: "carol"}))
	var served sync.WaitGroup
	served.Go(func() { _ = b.Serve(l) })
	t.Cleanup(served.Wait)
	t.Cleanup(func() { _ = l.Close() })
	dial := func(certs ...tls.Certificate) error {
		c, err := amqp.DialConfig("amqps://"+l.Addr().String()+"/", amqp.Config{
			SASL:            []amqp.Authentication{&amqp.ExternalAuth{}},
			TLSClientConfig: &tls.Config{RootCAs: ca, Certificates: certs, ServerName: "localhost"},
		})
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	must(t, dial(client))
	if err := dial(); err == nil {
		t.Error("somebody without a certificate is in")
	}
}

// Connections that don't open with AMQP's header go to the stream protocol, from
// their first byte; without one they are answered with AMQP's header.
func TestSniffing(t *testing.T) {
	h := handler(func(nc net.Conn) {
		_, _ = io.Copy(nc, nc)
		_ = nc.Close()
	})
	with, without := start(t, rabbitmq.WithStreams(h)), start(t)
	say := func(b *broker) string {
		nc, err := net.Dial("tcp", addr(t, b.url))
		must(t, err)
		defer nc.Close()
		_, err = nc.Write([]byte("\x00\x00\x00\x08peer props"))
		must(t, err)
		must(t, nc.(*net.TCPConn).CloseWrite())
		got, err := io.ReadAll(nc)
		must(t, err)
		return string(got)
	}
	if got := say(with); got != "\x00\x00\x00\x08peer props" {
		t.Errorf("the handler got %q", got)
	}
	if got := say(without); got != "AMQP\x00\x00\x09\x01" {
		t.Errorf("answered with %q", got)
	}
	_ = with.channel(t)
}

type handler func(net.Conn)

func (h handler) ServeConn(nc net.Conn) { h(nc) }

// The trace has a line for each request, and neither passwords nor bodies.
func TestTrace(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	var on atomic.Bool
	on.Store(true)
	b := start(t, rabbitmq.TraceWhen(on.Load), rabbitmq.Trace(func(line string) { mu.Lock(); lines = append(lines, line); mu.Unlock() }),
		rabbitmq.WithUsers(rabbitmq.User{Name: "guest", Password: "hush"}))
	b.url = strings.Replace(b.url, "guest:guest", "guest:hush", 1)
	ch := b.channel(t)
	queue(t, ch, "q", nil)
	put(t, ch, "q", "secret body")
	must(t, fetch(t, ch, "q", "secret body").Ack(false))
	must(t, ch.Close())
	on.Store(false)
	_ = b.channel(t)
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(strings.Join(lines, " "), "channel.open"); n != 1 {
		t.Errorf("%d channels in the trace, of which one was opened while it was on", n)
	}
	all := strings.Join(lines, "\n")
	for _, want := range []string{"connection.open", "channel.open", `queue.declare channel=1 ["q"]`, `basic.publish channel=1 exchange="" key="q" bytes=11`, `basic.get channel=1 ["q"]`, "basic.ack channel=1 tag=1", "channel.close"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	if strings.Contains(all, "hush") || strings.Contains(all, "secret") {
		t.Errorf("secrets in\n%s", all)
	}
}

// Concurrent publishers of bodies of all sizes and consumers on many channels: each
// body arrives whole, once.
func TestManyAtOnce(t *testing.T) {
	b := start(t)
	setup := b.channel(t)
	queue(t, setup, "q", amqp.Table{"x-queue-type": "quorum"})
	sizes := []int{0, 1, 255, 4096, 131_064, 131_065, 300_000}
	const publishers, each = 8, 28
	var all sync.WaitGroup
	for p := range publishers {
		c := b.dial(t)
		all.Go(func() {
			ch, err := c.Channel()
			if err != nil {
				t.Error(err)
				return
			}
			_ = ch.Confirm(false)
			for i := range each {
				size := sizes[i%len(sizes)]
				body := strings.Repeat(string(rune('a'+p)), size)
				d, err := ch.PublishWithDeferredConfirm("", "q", true, false, amqp.Publishing{Body: []byte(body), MessageId: fmt.Sprintf("%d-%d", p, i)})
				if err != nil || !d.Wait() {
					t.Errorf("publish %d-%d: %v", p, i, err)
				}
			}
		})
	}
	seen := make(chan string, publishers*each)
	for range 4 {
		ds := subscribe(t, b.channel(t), "q", "", 7, nil)
		all.Go(func() {
			for d := range ds {
				var p, i int
				_, _ = fmt.Sscanf(d.MessageId, "%d-%d", &p, &i)
				if want := sizes[i%len(sizes)]; len(d.Body) != want || strings.Trim(string(d.Body), string(rune('a'+p))) != "" {
					t.Errorf("%s came with %d bytes, want %d", d.MessageId, len(d.Body), want)
				}
				if err := d.Ack(false); err != nil {
					t.Error(err)
				}
				seen <- d.MessageId
			}
		})
	}
	ids := map[string]bool{}
	for range publishers * each {
		select {
		case id := <-seen:
			if ids[id] {
				t.Errorf("%s came twice", id)
			}
			ids[id] = true
		case <-time.After(30 * time.Second):
			t.Fatalf("%d of %d arrived", len(ids), publishers*each)
		}
	}
	b.Restart(true) // ends the consumers
	all.Wait()
}
