package sqs

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/internal/bubbletest"
	localsqs "github.com/onceline/onceline/localstack/sqs"
)

// slow holds back the answer to an operation until the channel is closed.
func slow(held chan<- struct{}, release <-chan struct{}) hook {
	return func(r *http.Request, goOn func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		resp, err := goOn(r)
		held <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return resp, err
	}
}

// A Receive is cancelled with messages on their way: they are given back as they
// arrive, to whoever comes.
func TestCancelledPollGivesBack(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		c, w, e, p, r := tappedEnds(t, fifo)
		publish(t, p, messages(2, "m")...)
		held, release := make(chan struct{}, 1), make(chan struct{})
		w.on("ReceiveMessage", slow(held, release))
		ctx, cancel := context.WithCancel(t.Context())
		out := make(chan error, 1)
		go func() {
			_, err := r.Receive(ctx, 10)
			out <- err
		}()
		<-held
		cancel()
		wantErr(t, <-out, context.Canceled)
		w.on("ReceiveMessage", nil)
		close(release)
		other := receiverOf(t, c, e.Subscription)
		begin := time.Now()
		for _, d := range receiveAll(t, other, 2) {
			if d.Attempt.Number != 2 {
				t.Errorf("%q at attempt %d: it costs one", d.ID, d.Attempt.Number)
			}
			ack(t, d)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// The next Receive takes over the poll that a cancelled one has left: nothing is
// given back, and no second poll is out.
func TestNextReceiveTakesOver(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		_, w, _, p, r := tappedEnds(t, fifo)
		publish(t, p, messages(5, "m")...)
		held, release := make(chan struct{}, 1), make(chan struct{})
		w.on("ReceiveMessage", slow(held, release))
		ctx, cancel := context.WithCancel(t.Context())
		out := make(chan error, 1)
		go func() {
			_, err := r.Receive(ctx, 10)
			out <- err
		}()
		<-held
		cancel()
		wantErr(t, <-out, context.Canceled)
		got := make(chan []broker.Delivery, 1)
		go func() {
			ds, _ := r.Receive(t.Context(), 2)
			got <- ds
		}()
		until(t, "the second Receive to wait", func() bool {
			d := innards(t, r)
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.open != nil && d.open.wanted
		})
		// The answer to what goes back is stuck, which is nothing to Receive.
		stuck, answer := make(chan struct{}, 1), make(chan struct{})
		w.on("ChangeMessageVisibilityBatch", slow(stuck, answer))
		begin := time.Now()
		close(release)
		ds := <-got
		if took := time.Since(begin); took > giveBackTime/2 {
			t.Errorf("Receive waited %v for it", took)
		}
		<-stuck
		close(answer)
		w.on("ChangeMessageVisibilityBatch", nil)
		if len(ds) != 2 || ds[0].Attempt.Number != 1 || w.count("ReceiveMessage") != 1 {
			t.Fatalf("%d deliveries after %d polls", len(ds), w.count("ReceiveMessage"))
		}
		w.on("ReceiveMessage", nil)
		// What is over its own number went back.
		if rest := receiveAll(t, r, 3); rest[0].Attempt.Number != 2 {
			t.Errorf("the rest came at attempt %d", rest[0].Attempt.Number)
		}
	})
}

// What arrives as the context ends is returned with a nil error.
func TestArrivedAsContextEnds(t *testing.T) {
	t.Parallel()
	_, w, _, p, r := tappedEnds(t, false)
	publish(t, p, message("x"))
	ctx, cancel := context.WithCancel(t.Context())
	w.on("ReceiveMessage", func(q *http.Request, goOn func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		resp, err := goOn(q)
		cancel()
		return resp, err
	})
	// Either is right, a stranded message isn't.
	ds, err := r.Receive(ctx, 1)
	w.on("ReceiveMessage", nil)
	if err == nil {
		ack(t, ds...)
		return
	}
	wantErr(t, err, context.Canceled)
	ack(t, *receiveOne(t, r))
}

// The answer to a receive is lost. A FIFO queue is asked again with the same
// attempt ID, and gives the same messages at the same attempt; what a standard
// queue handed out comes after its lease.
func TestLostReceiveResponse(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		_, w, _, p, r := tappedEnds(t, fifo, func(e *broker.Entity) { e.Lease = 2 * time.Second })
		publish(t, p, messages(3, "m")...)
		var mu sync.Mutex
		var attempts []string
		lose := loseResponse(1)
		w.on("ReceiveMessage", func(q *http.Request, goOn func(*http.Request) (*http.Response, error)) (*http.Response, error) {
			if id, ok := body(q)["ReceiveRequestAttemptId"].(string); ok {
				mu.Lock()
				attempts = append(attempts, id)
				mu.Unlock()
			}
			return lose(q, goOn)
		})
		begin := time.Now()
		ds := receiveAll(t, r, 3)
		took := time.Since(begin)
		w.on("ReceiveMessage", nil)
		mu.Lock()
		defer mu.Unlock()
		if fifo && (took > time.Second || ds[0].Attempt.Number != 1 || len(attempts) < 2 || attempts[0] != attempts[1]) {
			t.Errorf("came after %v at attempt %d, by %v", took, ds[0].Attempt.Number, attempts)
		}
		if !fifo && (took < time.Second || ds[0].Attempt.Number != 2) {
			t.Errorf("came after %v at attempt %d", took, ds[0].Attempt.Number)
		}
		ack(t, ds...)
	})
}

// Close asks again for what a lost answer may have handed out, and gives it back.
func TestCloseAfterLostResponse(t *testing.T) {
	t.Parallel()
	c, w, e, p, r := tappedEnds(t, true)
	publish(t, p, message("x"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lose := loseResponse(1000) // also to whoever asks again before the cancel is seen
	w.on("ReceiveMessage", func(q *http.Request, goOn func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		resp, err := lose(q, goOn)
		cancel()
		return resp, err
	})
	_, err := r.Receive(ctx, 1)
	wantErr(t, err, context.Canceled)
	w.on("ReceiveMessage", nil)
	closing(t, r)
	d := receiveOne(t, receiverOf(t, c, e.Subscription))
	if d.Attempt.Number < 2 {
		t.Errorf("attempt %d", d.Attempt.Number)
	}
}

// A body that came damaged is given back and said, and harms no other.
func TestDamagedBody(t *testing.T) {
	t.Parallel()
	_, w, _, p, r := tappedEnds(t, false)
	publish(t, p, messages(3, "m")...)
	damaged := ""
	w.on("ReceiveMessage", edit(1, func(m map[string]any) {
		first := m["Messages"].([]any)[0].(map[string]any)
		damaged = first["Body"].(string)
		first["Body"] = "damaged"
	}))
	ds := receive(t, r, 3, mustCome)
	if len(ds) != 2 {
		t.Fatalf("%d came", len(ds))
	}
	_, err := r.Receive(t.Context(), 1)
	wantErr(t, err, broker.ErrRefused, errChecksum)
	d := receiveOne(t, r)
	if string(d.Body) != damaged || d.Attempt.Number != 2 {
		t.Errorf("%q at attempt %d, want %q", d.Body, d.Attempt.Number, damaged)
	}
	ack(t, append(ds, *d)...)
}

// Errors that don't heal are returned at once, others are waited out.
func TestReceiveErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		code   string
		kind   error
	}{
		{400, "QueueDoesNotExist", broker.ErrNotFound},
		{403, "AccessDeniedException", broker.ErrUnauthorized},
	} {
		_, w, _, _, r := tappedEnds(t, true)
		w.on("ReceiveMessage", refuse(1, c.status, c.code, "by the test"))
		_, err := r.Receive(t.Context(), 1)
		wantErr(t, err, c.kind)
	}
	_, w, _, p, r := tappedEnds(t, false)
	w.on("ReceiveMessage", refuse(2, 503, "ServiceUnavailable", "by the test"))
	publish(t, p, message("x"))
	ack(t, *receiveOne(t, r))
	if n := w.count("ReceiveMessage"); n < 3 {
		t.Errorf("%d polls", n)
	}
}

// In a bubble, over an emulator without a network: a service that is away for
// longer than healing is an error of Receive, and works again after it.
func TestServiceAway(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		c, w, e := bubble(t)
		r, p := receiverOf(t, c, e.Subscription), publisherOf(t, c, e.Topic)
		w.on("ReceiveMessage", func(*http.Request, func(*http.Request) (*http.Response, error)) (*http.Response, error) {
			return nil, errors.New("no route")
		})
		begin := time.Now()
		_, err := r.Receive(t.Context(), 1)
		wantErr(t, err, broker.ErrUnavailable)
		if took := time.Since(begin); took < healing || took > healing+time.Second {
			t.Errorf("took %v", took)
		}
		w.on("ReceiveMessage", nil)
		publish(t, p, message("x"))
		ack(t, *receiveOne(t, r))
		closing(t, c)
	})
}

// Polls grow as a Receive waits on, up to PollWait and a quarter of the lease,
// and a message that comes meanwhile is there at once.
func TestPollsGrow(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		c, w, e := bubble(t)
		r, p := receiverOf(t, c, e.Subscription), publisherOf(t, c, e.Topic)
		var mu sync.Mutex
		var waits []float64
		w.on("ReceiveMessage", func(q *http.Request, goOn func(*http.Request) (*http.Response, error)) (*http.Response, error) {
			s, _ := body(q)["WaitTimeSeconds"].(float64)
			mu.Lock()
			waits = append(waits, s)
			mu.Unlock()
			return goOn(q)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := r.Receive(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		mu.Lock()
		if len(waits) < 5 || waits[0] != 1 || waits[2] > 4 || waits[len(waits)-1] != 5 {
			t.Errorf("polls waited %v seconds", waits)
		}
		mu.Unlock()
		begin := time.Now()
		go func() {
			time.Sleep(300 * time.Millisecond)
			_, _ = p.Publish(context.Background(), message("x"))
		}()
		d := receiveOne(t, r)
		if took := time.Since(begin); took != 300*time.Millisecond {
			t.Errorf("took %v", took)
		}
		ack(t, *d)
		closing(t, c)
	})
}

// A service that answers polls at once and with nothing isn't asked in a hot
// loop.
func TestHastyService(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		c, w, e := bubble(t)
		r := receiverOf(t, c, e.Subscription)
		w.on("ReceiveMessage", func(q *http.Request, _ func(*http.Request) (*http.Response, error)) (*http.Response, error) {
			return answer(q, 200, map[string]any{}), nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := r.Receive(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if n := w.count("ReceiveMessage"); n < 10 || n > 60 {
			t.Errorf("%d polls in ten seconds", n)
		}
		closing(t, c)
	})
}

// A poll that nobody waits for any more loses its answer: on a FIFO queue the
// next Receive asks for it again.
func TestAbandonedPollLosesAnswer(t *testing.T) {
	t.Parallel()
	_, w, _, p, r := tappedEnds(t, true)
	publish(t, p, message("x"))
	held, release := make(chan struct{}, 1), make(chan struct{})
	wait, lose := slow(held, release), loseResponse(1)
	w.on("ReceiveMessage", func(q *http.Request, goOn func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		return lose(q, func(q *http.Request) (*http.Response, error) { return wait(q, goOn) })
	})
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan error, 1)
	go func() {
		_, err := r.Receive(ctx, 1)
		out <- err
	}()
	<-held
	cancel()
	wantErr(t, <-out, context.Canceled)
	close(release)
	until(t, "the answer to be lost", func() bool {
		d := innards(t, r)
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.lost) == 1
	})
	w.on("ReceiveMessage", nil)
	if d := receiveOne(t, r); d.Attempt.Number != 1 {
		t.Errorf("attempt %d", d.Attempt.Number)
	}
}

// bubble is a connection to an emulator of its own inside a synctest bubble.
func bubble(t *testing.T, opts ...Option) (broker.Conn, *tap, broker.Entity) {
	t.Helper()
	s := localsqs.New()
	w := newTap()
	w.next = s.Transport()
	client := awssqs.New(awssqs.Options{Region: "us-east-1", BaseEndpoint: ptr("http://sqs.test"),
		Credentials: anonymous{}, HTTPClient: &http.Client{Transport: w}})
	c, err := New(client, append([]Option{FIFO(true)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	e := entity(t)
	ensure(t, c, e)
	return c, w, e
}

// A lease too short for a long poll is polled without waiting.
func TestShortLease(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		_, w, _, p, r := tappedEnds(t, fifo, func(e *broker.Entity) { e.Lease = time.Second })
		w.on("ReceiveMessage", func(q *http.Request, goOn func(*http.Request) (*http.Response, error)) (*http.Response, error) {
			if s, ok := body(q)["WaitTimeSeconds"]; ok {
				t.Errorf("a wait of %v s", s)
			}
			return goOn(q)
		})
		publish(t, p, message("x"))
		d := receiveOne(t, r)
		again := receiveOne(t, r) // after its lease
		if again.ID != "x" || again.Attempt.Number != 2 {
			t.Errorf("%q at attempt %d", again.ID, again.Attempt.Number)
		}
		if o, err := d.Ack(t.Context()); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrLeaseLost) {
			t.Errorf("late ack: %+v", o)
		}
		ack(t, *again)
		if n := w.count("DeleteMessageBatch"); n != 1 {
			t.Errorf("%d deletes: the late ack was sent", n)
		}
	})
}

func TestAttemptIDsDiffer(t *testing.T) {
	a, b := newAttempts(), newAttempts()
	x, y, z := a.next(), a.next(), b.next()
	if x == y || x == z || y == z || len(x) > maxField || !fieldText(x) || !strings.Contains(x, "-") {
		t.Errorf("%q %q %q", x, y, z)
	}
}

// A Receive that begins while Close is under way comes to the adapter after it: it
// returns, and doesn't wait for a turn that Close has kept.
func TestReceiveBehindClose(t *testing.T) {
	c, e, _, _ := ends(t, false)
	d, ok := driver.Unwrap(c)
	if !ok {
		t.Fatal("no driver connection")
	}
	r, err := d.OpenReceiver(t.Context(), e.Subscription, broker.ReceiverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	closing(t, r)
	behind := make(chan error, 1)
	go func() { behind <- r.Receive(t.Context(), 1, nil) }()
	select {
	case err := <-behind:
		if !errors.Is(err, broker.ErrClosed) {
			t.Errorf("error is %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it hangs")
	}
}
