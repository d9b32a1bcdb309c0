package sqs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/internal/bubbletest"
)

// Public bug reports about other clients, as tests of this one. Each names its
// report.

// bbc/sqs-consumer#193: entries that failed in a batch delete were taken for
// deleted, and came again.
func TestCaseFailedBatchDelete(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		_, w, _, p, r := tappedEnds(t, fifo)
		for code, want := range map[string]broker.State{"InternalError": broker.Confirmed, "ReceiptHandleIsInvalid": broker.LeaseLost} {
			publish(t, p, messages(10, code)...)
			ds := receiveAll(t, r, 10)
			w.on("DeleteMessageBatch", edit(1, failEntry("4", code, code != "InternalError")))
			for i, s := range settle(t, r, broker.Ack, 0, ds...) {
				if state := map[bool]broker.State{true: want, false: broker.Confirmed}[i == 4]; s.Outcome.State != state {
					t.Errorf("%s: outcome %d is %+v", code, i, s.Outcome)
				}
			}
		}
	})
}

// redpanda-data/connect#182: one message twice in a batch of acks, once by a
// handle whose lease had ended, failed the whole batch.
func TestCaseSameMessageTwiceInBatch(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		s, c, _, e := movable(t, fifo)
		p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		publish(t, p, message("m1"))
		old := receiveOne(t, r)
		s.Clock().Advance(31 * time.Second)
		publish(t, p, message("m2"))
		ds := receiveAll(t, r, 2)
		out := settle(t, r, broker.Ack, 0, *old, ds[0], ds[1])
		if out[0].Outcome.State != broker.LeaseLost || out[1].Outcome.State != broker.Confirmed || out[2].Outcome.State != broker.Confirmed {
			t.Errorf("%+v", out)
		}
		s.Clock().Advance(31 * time.Second)
		if ds := receive(t, r, 10, 50*time.Millisecond); len(ds) > 0 {
			t.Errorf("%s came again", ids(ds))
		}
	})
}

// dapr/components-contrib#1205: the name of a FIFO queue was rewritten, and a
// standard queue was made.
func TestCaseFIFONames(t *testing.T) {
	t.Parallel()
	c := dialShared(t)
	e := entity(t, func(e *broker.Entity) { e.Topic += fifoSuffix; e.Subscription, e.Ordered = e.Topic, true })
	ensure(t, c, e)
	var q Queue
	if publisherOf(t, c, e.Topic).As(&q); !q.FIFO || q.Name != e.Topic {
		t.Errorf("%+v", q)
	}
	plain := entity(t, func(e *broker.Entity) { e.Ordered = true })
	if err := c.Ensure(t.Context(), plain); !errors.Is(err, broker.ErrUnsupported) || !strings.Contains(err.Error(), ".fifo") {
		t.Errorf("order without a FIFO name: %v", err)
	}
	// With fifo=true both names are the one queue.
	f := dialShared(t, FIFO(true))
	ensure(t, f, plain)
	for _, name := range []string{plain.Topic, plain.Topic + fifoSuffix} {
		if publisherOf(t, f, name).As(&q); !q.FIFO || q.Name != plain.Topic+fifoSuffix {
			t.Errorf("%s: %+v", name, q)
		}
	}
	if got := queues(t, c, plain.Topic); len(got) != 1 {
		t.Errorf("queues %v", got)
	}
}

// localstack/localstack#10460: with the message group as dedup scope, the second
// group's message vanished.
func TestCaseGroupScope(t *testing.T) {
	t.Parallel()
	c := dialShared(t, FIFO(true), HighThroughput(), PollWait(0))
	e := entity(t)
	ensure(t, c, e)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, keyed("g1", "x")[0], keyed("g2", "x")[0])
	ack(t, receiveAll(t, r, 2)...)
	var q Queue
	p.As(&q)
	if got := q.Boundary().Entries["publish.dedup.scope"].Declared; got != "key" {
		t.Errorf("the boundary says %q", got)
	}
}

// asim/nitro-plugins#549: more than ten attributes, or a name that SQS doesn't
// take, lost the message without a word.
func TestCaseManyAttributes(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		_, w, _, p, r := tappedEnds(t, fifo)
		m := message("x")
		for i := range 11 {
			m.Headers = append(m.Headers, broker.Header{Key: fmt.Sprint("h", i), Value: "v"})
		}
		m.Headers = append(m.Headers, broker.Header{Key: ":authority", Value: "a"}, broker.Header{Key: "AWS.x", Value: "b"},
			broker.Header{Key: strings.Repeat("n", 257), Value: "c"}, broker.Header{Key: "large", Value: strings.Repeat("v", 20<<10)})
		w.on("SendMessageBatch", func(q *http.Request, goOn func(*http.Request) (*http.Response, error)) (*http.Response, error) {
			attrs := body(q)["Entries"].([]any)[0].(map[string]any)["MessageAttributes"].(map[string]any)
			if len(attrs) > maxAttributes || attrs["h0"] == nil {
				t.Errorf("%d attributes", len(attrs))
			}
			return goOn(q)
		})
		publish(t, p, m)
		if d := receiveOne(t, r); fmt.Sprint(d.Headers) != fmt.Sprint(m.Headers) {
			t.Errorf("%d headers came of %d", len(d.Headers), len(m.Headers))
		}
		m.Headers = broker.Headers{{Key: "", Value: "x"}}
		_, err := p.Publish(t.Context(), m)
		wantErr(t, err, broker.ErrInvalid)
	})
}

// redpanda-data/connect#1948: a handler that took longer than the lease got its
// message again and again.
func TestCaseSlowHandler(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		c, w, _ := bubble(t)
		e := entity(t, func(e *broker.Entity) { e.Lease = time.Second })
		ensure(t, c, e)
		publish(t, publisherOf(t, c, e.Topic), message("x"))
		ctx, cancel := context.WithCancel(t.Context())
		began, done, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- broker.Consume(ctx, receiverOf(t, c, e.Subscription), func(context.Context, *broker.Delivery) error {
				close(began) // a second run would panic
				time.Sleep(5 * time.Second)
				close(done)
				return nil
			}, broker.ConsumeOptions{})
		}()
		<-began
		other := receiverOf(t, c, e.Subscription)
		if ds := receive(t, other, 1, 4900*time.Millisecond); len(ds) > 0 {
			t.Errorf("another receiver got it at attempt %d", ds[0].Attempt.Number)
		}
		<-done
		synctest.Wait()
		extends := w.count("ChangeMessageVisibilityBatch")
		if ds := receive(t, other, 1, 10*time.Second); len(ds) > 0 {
			t.Error("it came again after its ack")
		}
		if n := w.count("ChangeMessageVisibilityBatch"); n != extends || extends < 4 {
			t.Errorf("%d extends, %d after the ack", extends, n-extends)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		closing(t, c)
	})
}

// aws/aws-sdk-go-v2#2068: cancelling a long poll left messages in flight that
// nobody had seen.
func TestCaseCancelledPoll(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		c, w, _ := bubble(t)
		e := entity(t, func(e *broker.Entity) { e.Lease = time.Minute })
		ensure(t, c, e)
		publish(t, publisherOf(t, c, e.Topic), messages(2, "m")...)
		r := receiverOf(t, c, e.Subscription)
		w.on("ReceiveMessage", func(q *http.Request, goOn func(*http.Request) (*http.Response, error)) (*http.Response, error) {
			resp, err := goOn(q)
			time.Sleep(200 * time.Millisecond)
			return resp, err
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if ds, err := r.Receive(ctx, 10); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%d, %v", len(ds), err)
		}
		w.on("ReceiveMessage", nil)
		begin := time.Now()
		ack(t, receiveAll(t, r, 2)...)
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
		closing(t, c)
	})
}

// elixir-broadway/broadway_sqs#78: what lay behind a failed message of the same
// group in a batch was handled before it.
func TestCaseFailedKeepsOrder(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		c, _, e := bubble(t)
		publish(t, publisherOf(t, c, e.Topic), keyed("g", "1", "2", "3")...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var order []string
		err := broker.Consume(ctx, receiverOf(t, c, e.Subscription), func(_ context.Context, d *broker.Delivery) error {
			order = append(order, d.ID)
			if len(order) == 1 {
				return errors.New("the first time")
			}
			if len(order) == 4 {
				cancel()
			}
			return nil
		}, broker.ConsumeOptions{ErrorHook: func(error) {}})
		if got := strings.Join(order, " "); got != "1 1 2 3" || err != nil {
			t.Errorf("handled %s, %v", got, err)
		}
		closing(t, c)
	})
}

// ruby-shoryuken/shoryuken#473: a dead letter that was sent again under its old
// dedup ID within five minutes was swallowed.
func TestCaseRedriveInWindow(t *testing.T) {
	t.Parallel()
	_, p, r, dead, _ := letterEnds(t, true)
	publish(t, p, message("x"))
	if _, err := receiveOne(t, r).DeadLetter(t.Context(), "poison"); err != nil {
		t.Fatal(err)
	}
	letter := receiveOne(t, dead)
	again := letter.Message
	again.Copy = "redrive-1"
	publish(t, p, again)
	ack(t, *letter)
	d := receiveOne(t, r)
	if d.ID != "x" || d.Copy != "redrive-1" {
		t.Errorf("%q %q", d.ID, d.Copy)
	}
	ack(t, *d)
}

// aws/aws-sdk-go#339: a checksum that didn't fit made the SDK send a message
// again that was stored.
func TestCaseChecksum(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		_, w, _, p, r := tappedEnds(t, fifo)
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		m := message("x")
		m.Body = all
		w.on("SendMessageBatch", edit(1, func(a map[string]any) {
			a["Successful"].([]any)[0].(map[string]any)["MD5OfMessageBody"] = strings.Repeat("0", 32)
		}))
		rs, err := p.Publish(t.Context(), m, message("y"))
		wantErr(t, err, broker.ErrUnknownOutcome, errChecksum)
		if rs[0].Verdict != broker.Unknown || !rs[1].Verdict.OK() || w.count("SendMessageBatch") != 1 {
			t.Errorf("%+v after %d requests", rs, w.count("SendMessageBatch"))
		}
		publish(t, p, m)
		ds := receiveAll(t, r, map[bool]int{true: 2, false: 3}[fifo])
		for _, d := range ds {
			if d.ID == "x" && string(d.Body) != string(all) {
				t.Errorf("came as %q", d.Body)
			}
		}
		if more := receive(t, r, 1, 50*time.Millisecond); len(more) > 0 {
			t.Error("another copy")
		}
	})
}

// dapr/components-contrib#2026: a message that is gone under a live lease kept
// its entry for ever. The service confirms the delete of what is gone; there is
// no second delivery and no loop.
func TestCaseMessageGoneUnderLease(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		c, w, e, p, r := tappedEnds(t, fifo)
		publish(t, p, messages(2, "m")...)
		ds := receiveAll(t, r, 2)
		var client *awssqs.Client
		c.As(&client)
		var q Queue
		r.As(&q)
		if _, err := client.PurgeQueue(t.Context(), &awssqs.PurgeQueueInput{QueueUrl: &q.URL}); err != nil {
			t.Fatal(err)
		}
		if o, err := ds[0].Extend(t.Context(), 0); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrLeaseLost) {
			t.Errorf("extend: %+v", o)
		}
		if o, err := ds[1].Ack(t.Context()); o.State != broker.Confirmed || err != nil {
			t.Errorf("ack: %+v", o)
		}
		if n := w.count("DeleteMessageBatch") + w.count("ChangeMessageVisibilityBatch"); n != 2 {
			t.Errorf("%d requests", n)
		}
		closing(t, r)
		if ds := receive(t, receiverOf(t, c, e.Subscription), 1, 50*time.Millisecond); len(ds) > 0 {
			t.Error("it came again")
		}
	})
}

// google/go-cloud#1733: settling twice had one answer on each broker.
func TestCaseSettleTwice(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		_, w, _, p, r := tappedEnds(t, fifo)
		publish(t, p, message("x"))
		d := receiveOne(t, r)
		ack(t, *d, *d)
		if o, err := d.Nack(t.Context(), 0); !errors.Is(err, broker.ErrConflict) || o.State != broker.Confirmed {
			t.Errorf("nack: %+v", o)
		}
		if n := w.count("DeleteMessageBatch") + w.count("ChangeMessageVisibilityBatch"); n != 1 {
			t.Errorf("%d requests", n)
		}
		publish(t, p, message("y"))
		ack(t, *receiveOne(t, r))
	})
}

// softwaremill/elasticmq#2: a consumer whose lease had ended deleted the message
// that another one held.
func TestCaseStaleAck(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		s, c, w, e := movable(t, fifo)
		publish(t, publisherOf(t, c, e.Topic), message("m"))
		a, b := receiverOf(t, c, e.Subscription), receiverOf(t, c, e.Subscription)
		late := receiveOne(t, a)
		s.Clock().Advance(31 * time.Second)
		held := receiveOne(t, b)
		if o, err := late.Ack(t.Context()); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrLeaseLost) {
			t.Errorf("late ack: %+v", o)
		}
		if w.count("DeleteMessageBatch") != 0 {
			t.Error("it was sent")
		}
		if _, err := held.Nack(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		ack(t, *receiveOne(t, a))
	})
}

// asim/nitro-plugins#437: a body with control characters was refused.
func TestCaseBinaryBodies(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		_, _, p, r := ends(t, fifo)
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		for i, text := range []string{"", "\x00", "\x07", string(all), "\xff\xfe", "\ufffe", "\U0001F600", "aGVsbG8="} {
			m := broker.Message{ID: fmt.Sprint(i), Body: []byte(text)}
			publish(t, p, m)
			d := receiveOne(t, r)
			if string(d.Body) != text {
				t.Errorf("%q came as %q", text, d.Body)
			}
			ack(t, *d)
		}
	})
}
