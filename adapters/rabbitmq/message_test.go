package rabbitmq

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// over is what a message is after the broker.
func over(t testing.TB, e *encoder, m *broker.Message) broker.Message {
	t.Helper()
	var p amqp.Publishing
	if err := e.set(m, &p); err != nil {
		t.Fatal(err)
	}
	if err := p.Headers.Validate(); err != nil {
		t.Fatal(err)
	}
	table := amqp.Table{}
	for k, v := range p.Headers {
		if len(k) > maxField {
			t.Fatalf("a name of %d bytes would tear the frame", len(k))
		}
		table[k] = v
	}
	if len(p.MessageId) > maxField {
		t.Fatal("message-id is too long")
	}
	var got broker.Message
	decode(&got, &amqp.Delivery{MessageId: p.MessageId, Headers: table, Timestamp: p.Timestamp, Body: p.Body})
	return got
}

func TestMessage(t *testing.T) {
	t.Parallel()
	e := &encoder{room: 1 << 16} // used again, as in a batch
	now := time.UnixMilli(1700000000123)
	for _, m := range []broker.Message{
		{ID: "a"},
		{ID: "a", Copy: "b", Key: "k", Body: []byte("x"), Headers: broker.Headers{{Key: "h", Value: "v"}}},
		{ID: "b"},
		{ID: strings.Repeat("x", broker.MaxID)},
		{ID: "\xff\xfe"},
		{ID: "onceline-sha256-" + strings.Repeat("0", 64)},
		{ID: "c", Headers: broker.Headers{{Key: "b", Value: "1"}, {Key: "a", Value: "2"}, {Key: "b", Value: "3"}}},
		{ID: "d", Headers: broker.Headers{{Key: "x-death", Value: "1"}, {Key: "BCC", Value: "2"}, {Key: strings.Repeat("n", 300), Value: "\x00"}}},
		{ID: "e", Headers: broker.Headers{{Key: driver.HeaderReason, Value: "republished"}}},
		{ID: "f", Key: "\x01"},
	} {
		m.Time = now
		if got := over(t, e, &m); !reflect.DeepEqual(got, m) {
			t.Errorf("%+v came as %+v", m, got)
		}
	}
	huge := broker.Message{ID: "g", Headers: broker.Headers{{Key: "k", Value: strings.Repeat("x", 1<<16)}}}
	var p amqp.Publishing
	if err := e.set(&huge, &p); err == nil {
		t.Error("headers over a frame were taken")
	}
}

func FuzzMessage(f *testing.F) {
	f.Add("id", "copy", "key", "a", "1", "b", "2")
	f.Add("\xff", "", "", "b", "\x00", "a", "")
	e := &encoder{room: 1 << 16}
	f.Fuzz(func(t *testing.T, id, copy, key, n1, v1, n2, v2 string) {
		if id == "" || n1 == "" || n2 == "" || len(id)+len(copy)+len(key)+len(n1)+len(n2)+len(v1)+len(v2) > 8000 ||
			hasPrefixFold(n1, broker.ReservedPrefix) || hasPrefixFold(n2, broker.ReservedPrefix) {
			t.Skip()
		}
		m := broker.Message{ID: id, Copy: copy, Key: key, Time: time.UnixMilli(5), Headers: broker.Headers{{Key: n1, Value: v1}, {Key: n2, Value: v2}}}
		if got := over(t, e, &m); !reflect.DeepEqual(got, m) {
			t.Fatalf("%+v came as %+v", m, got)
		}
	})
}

func TestDecodeForeign(t *testing.T) {
	t.Parallel()
	stamp := time.Unix(1700000000, 0)
	d := &amqp.Delivery{MessageId: "m", Timestamp: stamp, Headers: amqp.Table{"n": int32(3), "b": true, "x-delivery-count": int64(2),
		"x-first-death-queue": "q", driver.HeaderEnvelope: "%zz", driver.HeaderTime: "soon", "s": "v",
		"x-death": []any{amqp.Table{"queue": "orders/billing", "reason": "delivery_limit"}}}}
	var m broker.Message
	decode(&m, d)
	want := "[{b true} {n 3} {s v} {onceline-dead-letter-reason delivery_limit} {onceline-dead-letter-source orders/billing}]"
	if m.ID != "m" || fmt.Sprint(m.Headers) != want {
		t.Errorf("%+v", m)
	}
	delete(d.Headers, driver.HeaderTime)
	if decode(&m, d); !m.Time.Equal(stamp) {
		t.Errorf("%s", m.Time)
	}
	// What comes back from a retry queue is no dead letter, and hostile deaths are none.
	for _, death := range []any{[]any{amqp.Table{"queue": retryQueue("q", time.Second), "reason": "expired"}}, []any{7}, 7, []any{}, nil} {
		var m broker.Message
		decode(&m, &amqp.Delivery{Headers: amqp.Table{"x-death": death}})
		if len(m.Headers) > 0 {
			t.Errorf("%v: %v", death, m.Headers)
		}
	}
}

func TestAttempt(t *testing.T) {
	t.Parallel()
	for want, d := range map[broker.Attempt]amqp.Delivery{
		{Number: 1, Trust: broker.None}:  {},
		{Number: 2, Trust: broker.None}:  {Redelivered: true},
		{Number: 3, Trust: broker.Exact}: {Headers: amqp.Table{headerCount: int64(2)}},
		{Number: 4, Trust: broker.Exact}: {Headers: amqp.Table{headerCount: int64(1), headerAcquired: int64(3)}},
		{Number: 6, Trust: broker.Exact}: {Headers: amqp.Table{headerCount: int64(2), headerAttempts: "3"}},
		{Number: 5, Trust: broker.None}:  {Headers: amqp.Table{headerAttempts: "4", headerCount: "x"}},
		{Number: 2, Trust: broker.None}:  {Headers: amqp.Table{headerAttempts: "1"}},
	} {
		if got := attemptOf(&d); got != want {
			t.Errorf("%+v: %+v, want %+v", d.Headers, got, want)
		}
	}
}

func TestRetryNames(t *testing.T) {
	t.Parallel()
	last := time.Duration(0)
	queues := map[time.Duration]bool{}
	for d := time.Millisecond; d < 24*time.Hour; d += d/50 + time.Microsecond {
		r := roundDelay(d)
		if r < d || r > d+d/4+time.Millisecond || r < last {
			t.Fatalf("%s is rounded to %s", d, r)
		}
		last = r
		queues[r] = true
		if name := retryQueue("a/b", r); retryOf(name) != "a/b" || !isRetryQueue(name) {
			t.Fatal(name)
		}
	}
	if len(queues) > 130 {
		t.Errorf("%d queues for all delays up to a day", len(queues))
	}
	if isRetryQueue("a") || isRetryQueue("") || isRetryQueue(retryMark+"1") {
		t.Error("not every queue is one")
	}
}
