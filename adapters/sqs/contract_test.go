package sqs

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceline/onceline/broker"
)

func TestRoundTrip(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		c, e, p, r := ends(t, fifo)
		when := time.UnixMilli(1700000000123)
		m := broker.Message{ID: "order-17", Key: "customer-4", Body: []byte("body"), Time: when, Headers: broker.Headers{{Key: "a", Value: "1"}}}
		rs := publish(t, p, m)
		if want := map[bool]broker.Verdict{true: broker.Accepted, false: broker.Stored}[fifo]; rs[0].Verdict != want || rs[0].Position.Token == "" {
			t.Fatalf("receipt %+v, want %v with a position", rs[0], want)
		}
		d := receiveOne(t, r)
		if d.ID != m.ID || d.Key != m.Key || string(d.Body) != "body" || !d.Time.Equal(when) || len(d.Headers) != 1 || d.Headers[0] != m.Headers[0] {
			t.Errorf("came as %+v", d.Message)
		}
		if d.Attempt != (broker.Attempt{Number: 1, Trust: broker.Approximate}) || d.Position != rs[0].Position {
			t.Errorf("attempt %+v, position %+v, receipt's %+v", d.Attempt, d.Position, rs[0].Position)
		}
		if left := time.Until(d.Lease); left <= 20*time.Second || left > 30*time.Second {
			t.Errorf("lease left: %v", left)
		}
		ack(t, *d)
		var q Queue
		if !r.As(&q) || q.FIFO != fifo || q.Lease != 30*time.Second || !strings.HasPrefix(q.Name, e.Topic) {
			t.Errorf("queue %+v", q)
		}
		var client *awssqs.Client
		var sdk *types.Message
		if !c.As(&client) || !p.As(&client) || client == nil || !d.As(&sdk) || *sdk.Body != "body" {
			t.Error("no raw access")
		}
		var s *string
		if c.As(&s) || d.As(&s) {
			t.Error("a string?")
		}
		publish(t, p, m)
		n := len(receive(t, r, 1, 300*time.Millisecond))
		if want := map[bool]int{true: 0, false: 1}[fifo]; n != want {
			t.Errorf("%d came of a second publish, want %d", n, want)
		}
	})
}

// Everything that a message can hold survives, on both kinds of queue.
func TestMessagesSurvive(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	long := strings.Repeat("x", 300)
	table := []broker.Message{
		{ID: "plain", Body: []byte("text")},
		{ID: "empty"},
		{ID: "nul", Body: []byte{0}},
		{ID: "bel", Body: []byte{7}},
		{ID: "all", Body: all},
		{ID: "not utf-8", Body: []byte{'a', 0xff, 'b'}},
		{ID: "u+fffe", Body: []byte("\ufffe")},
		{ID: "surrogate", Body: []byte("\xed\xa0\x80")},
		{ID: "emoji", Body: []byte("a\U0001F600b\u00e9\t\r\n")},
		{ID: "looks like base64", Body: []byte("aGVsbG8=")},
		{ID: "looks empty", Body: []byte(bodyEmpty)},
		{ID: long, Body: []byte("long ID")},
		{ID: "with space and \u00fcmlaut%41", Body: []byte("odd ID")},
		{ID: "copy", Copy: "replay 1", Body: []byte("x")},
		{ID: "key", Key: "k", Body: []byte("x")},
		{ID: "same", Key: "same", Body: []byte("a key like the ID")},
		{ID: "long key", Key: long, Body: []byte("x")},
		{ID: "odd key", Key: "a b\u00fc", Body: []byte("x")},
		{ID: "sly key", Key: hashedPrefix + strings.Repeat("0", 64), Body: []byte("x")},
		{ID: "onceline-sha256-x", Key: "k", Copy: "c", Body: []byte("x")},
		{ID: "headers", Headers: broker.Headers{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}},
		{ID: "order", Headers: broker.Headers{{Key: "b", Value: "2"}, {Key: "a", Value: "1"}}},
		{ID: "repeats", Headers: broker.Headers{{Key: "a", Value: "1"}, {Key: "a", Value: "2"}}},
		{ID: "empty value", Headers: broker.Headers{{Key: "a", Value: ""}}},
		{ID: "binary value", Headers: broker.Headers{{Key: "a", Value: string(all)}}},
		{ID: "odd names", Headers: broker.Headers{{Key: ":authority", Value: "1"}, {Key: "AWS.x", Value: "2"}, {Key: "amazon.y", Value: "3"},
			{Key: ".a", Value: "4"}, {Key: "a..b", Value: "5"}, {Key: strings.Repeat("n", 257), Value: "6"}, {Key: "\x00", Value: "7"}}},
		{ID: "dead letter again", Headers: broker.Headers{{Key: "a", Value: "1"}, {Key: "onceline-dead-letter-reason", Value: "x y"}}},
	}
	var many broker.Headers
	for i := range 40 {
		many = append(many, broker.Header{Key: fmt.Sprintf("h%02d", i), Value: strings.Repeat("v", i)})
	}
	for n := range 12 {
		table = append(table, broker.Message{ID: fmt.Sprintf("headers-%d", n), Key: "k", Copy: "c", Body: []byte{0}, Headers: many[1 : 1+n]})
	}
	table = append(table, broker.Message{ID: "headers-40", Headers: many})
	kinds(t, func(t *testing.T, fifo bool) {
		_, _, p, r := ends(t, fifo)
		for _, m := range table {
			m.Time = time.UnixMilli(1700000000123)
			publish(t, p, m)
			d := receiveOne(t, r)
			if d.ID != m.ID || d.Copy != m.Copy || d.Key != m.Key || !bytes.Equal(d.Body, m.Body) || !d.Time.Equal(m.Time) || fmt.Sprint(d.Headers) != fmt.Sprint(m.Headers) {
				t.Errorf("%.40q %q %q came as %+v\nheaders %q", m.ID, m.Copy, m.Key, d.Message, d.Headers)
			}
			ack(t, *d)
		}
	})
}

// More than ten of everything: batches are split and joined.
func TestLargeBatches(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		_, _, p, r := ends(t, fifo)
		ms := messages(95, "m")
		for i, rc := range publish(t, p, ms...) {
			if !rc.Verdict.OK() || rc.Position.Token == "" {
				t.Fatalf("receipt %d is %+v", i, rc)
			}
		}
		seen := map[string]int{}
		ds := receiveAll(t, r, len(ms))
		s := make([]broker.Settlement, len(ds))
		for i := range ds {
			seen[ds[i].ID]++
			s[i] = broker.Settlement{Delivery: &ds[i], Action: broker.Extend, Delay: time.Minute}
		}
		if len(seen) != len(ms) {
			t.Fatalf("%d of %d came", len(seen), len(ms))
		}
		if err := r.Settle(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		for i := range s {
			if left := time.Until(s[i].Outcome.Lease); s[i].Outcome.State != broker.Confirmed || left < 50*time.Second || left > time.Minute {
				t.Fatalf("extend %d: %+v", i, s[i].Outcome)
			}
			s[i] = broker.Settlement{Delivery: &ds[i]}
		}
		if err := r.Settle(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		for i := range s {
			if s[i].Outcome.State != broker.Confirmed {
				t.Fatalf("ack %d: %+v", i, s[i].Outcome)
			}
		}
		if ds := receive(t, r, 10, 200*time.Millisecond); len(ds) > 0 {
			t.Errorf("came again: %s", ids(ds))
		}
	})
}

func TestNack(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		_, _, p, r := ends(t, fifo)
		publish(t, p, message("now"), message("later"))
		ds := receiveAll(t, r, 2)
		begin := time.Now()
		for i := range ds {
			delay := time.Duration(0)
			if ds[i].ID == "later" {
				delay = 900 * time.Millisecond // a second, for the service counts in seconds
			}
			if o, err := ds[i].Nack(t.Context(), delay); err != nil || o.State != broker.Confirmed {
				t.Fatalf("nack: %v %v", o.State, err)
			}
		}
		if o, err := ds[0].Ack(t.Context()); err == nil || o.State != broker.Confirmed {
			t.Errorf("ack after nack: %v %v", o.State, err)
		}
		first := receiveOne(t, r)
		if took := time.Since(begin); first.ID != "now" || first.Attempt.Number != 2 || took > 500*time.Millisecond {
			t.Errorf("first came %q, attempt %d, after %v", first.ID, first.Attempt.Number, took)
		}
		second := receiveOne(t, r)
		if took := time.Since(begin); second.ID != "later" || took < 900*time.Millisecond || took > 3*time.Second {
			t.Errorf("then came %q after %v", second.ID, took)
		}
		ack(t, *first, *second)
	})
}

// Close gives back what is held, and ends a Receive that waits.
func TestCloseGivesBack(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		w := newTap()
		c := dialShared(t, FIFO(fifo), w.option())
		e := entity(t)
		ensure(t, c, e)
		p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		publish(t, p, messages(15, "m")...)
		ds := receiveAll(t, r, 15)
		ack(t, ds[0])
		out := make(chan error, 1)
		go func() {
			_, err := r.Receive(context.Background(), 1)
			out <- err
		}()
		until(t, "the poll to wait", func() bool { return w.inFlight("ReceiveMessage") > 0 })
		closing(t, r)
		wantErr(t, <-out, broker.ErrClosed)
		again := receiveAll(t, receiverOf(t, c, e.Subscription), 14)
		for i := range again {
			if again[i].Attempt.Number != 2 {
				t.Errorf("%q at attempt %d", again[i].ID, again[i].Attempt.Number)
			}
		}
		if o, err := ds[1].Ack(t.Context()); o.State != broker.LeaseLost || err == nil {
			t.Errorf("ack after close: %+v", o)
		}
	})
}
