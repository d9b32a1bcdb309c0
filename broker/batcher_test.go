package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/internal/bubbletest"
)

// slow answers after d, or Unknown when ctx ends first, as an adapter does.
func slow(d time.Duration) func(context.Context, int, []broker.Message) []broker.Receipt {
	return func(ctx context.Context, _ int, msgs []broker.Message) []broker.Receipt {
		select {
		case <-time.After(d):
			return stored(len(msgs))
		case <-ctx.Done():
			rs := unknown(len(msgs))
			for i := range rs {
				rs[i].Err = broker.Errorf(broker.ErrUnknownOutcome, context.Cause(ctx), "fake")
			}
			return rs
		}
	}
}

func TestBatcherGrowsWhileInFlight(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		p := &fakePublisher{answer: slow(time.Millisecond)}
		b := broker.NewBatcher(p, 1, 100)
		var got []broker.Verdict
		start := time.Now()
		for i := range 60 {
			b.Go(t.Context(), broker.Message{ID: fmt.Sprint(i)}, func(r broker.Receipt) { got = append(got, r.Verdict) })
			if i == 0 {
				synctest.Wait() // the first message finds the lane idle and leaves at once
			}
		}
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 2*time.Millisecond {
			t.Errorf("took %s, want two round trips", d)
		}
		if len(got) != 60 || slices.ContainsFunc(got, func(v broker.Verdict) bool { return v != broker.Stored }) {
			t.Errorf("receipts: %v", got)
		}
		if n := len(p.sent()); n != 2 {
			t.Errorf("%d batches, want the first message alone and then the rest: %v", n, p.sent())
		}
		if p.closed != 1 {
			t.Errorf("the publisher under it was closed %d times", p.closed)
		}
	})
}

func TestBatcherKeepsOrderPerKey(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		var mu sync.Mutex
		order := map[string][]string{}
		p := &fakePublisher{}
		p.answer = func(ctx context.Context, call int, msgs []broker.Message) []broker.Receipt {
			time.Sleep(time.Duration(1+call%5) * time.Millisecond) // batches overtake each other across lanes
			mu.Lock()
			defer mu.Unlock()
			for i := range msgs {
				order[msgs[i].Key] = append(order[msgs[i].Key], msgs[i].ID)
			}
			return stored(len(msgs))
		}
		b := broker.NewBatcher(p, 4, 7)
		var wait sync.WaitGroup
		for k := range 10 {
			wait.Go(func() {
				for i := range 100 {
					m := broker.Message{ID: fmt.Sprintf("%03d", i), Key: fmt.Sprint(k)}
					if i%3 == 0 {
						if _, err := b.Publish(t.Context(), m); err != nil {
							t.Error(err)
						}
					} else {
						b.Go(t.Context(), m, func(r broker.Receipt) {
							if !r.Verdict.OK() {
								t.Error(r)
							}
						})
					}
				}
			})
		}
		wait.Wait()
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for k, ids := range order {
			if len(ids) != 100 || !slices.IsSorted(ids) {
				t.Errorf("key %s: %v", k, ids)
			}
		}
	})
}

// A message without a key doesn't wait behind a lane that is busy while another
// one is idle.
func TestBatcherUsesIdleLanes(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		p := &fakePublisher{answer: slow(time.Second)}
		b := broker.NewBatcher(p, 4, 100)
		start := time.Now()
		for i := range 4 {
			b.Go(t.Context(), broker.Message{ID: fmt.Sprint(i)}, func(broker.Receipt) {})
			synctest.Wait()
		}
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != time.Second {
			t.Errorf("four messages on four lanes took %s", d)
		}
	})
}

func TestBatcherBackPressure(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		p := &fakePublisher{answer: slow(time.Minute)}
		b := broker.NewBatcher(p, 1, 2)
		var verdicts [4]broker.Receipt
		for i := range 3 { // one in flight, two queued
			b.Go(t.Context(), broker.Message{ID: fmt.Sprint(i)}, func(r broker.Receipt) { verdicts[i] = r })
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		b.Go(ctx, broker.Message{ID: "3"}, func(r broker.Receipt) { verdicts[3] = r })
		if d := time.Since(start); d != time.Second {
			t.Errorf("Go on a full lane blocked for %s, want until its context ended", d)
		}
		if r := verdicts[3]; r.Verdict != broker.Refused || !errors.Is(r.Err, broker.ErrUnavailable) || !errors.Is(r.Err, context.DeadlineExceeded) {
			t.Errorf("receipt of the message that found no room: %v", r)
		}
		// With room, the call goes through.
		b.Go(t.Context(), broker.Message{ID: "4"}, func(r broker.Receipt) { verdicts[3] = r })
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, r := range verdicts {
			if r.Verdict != broker.Stored {
				t.Errorf("%d: %v", i, r)
			}
		}
		if want := [][]string{{"0"}, {"1", "2"}, {"4"}}; fmt.Sprint(p.sent()) != fmt.Sprint(want) {
			t.Errorf("sent %v, want %v", p.sent(), want)
		}
	})
}

// A caller that gives up gets its queued messages back unsent and its flying
// ones as Unknown, and harms nobody else in the batch.
func TestBatcherPublishGivesUp(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		p := &fakePublisher{answer: slow(time.Minute)}
		b := broker.NewBatcher(p, 1, 2)
		other := make(chan broker.Receipt, 1)
		b.Go(t.Context(), broker.Message{ID: "first"}, func(broker.Receipt) {})
		synctest.Wait()
		b.Go(context.Background(), broker.Message{ID: "other"}, func(r broker.Receipt) { other <- r })

		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		// One flies with "other" in the second minute, one waits for the third.
		msgs := []broker.Message{{ID: "flies"}, {ID: "waits"}}
		rs, err := b.Publish(ctx, msgs...)
		if len(rs) != 2 || err == nil {
			t.Fatalf("%v, %v", rs, err)
		}
		if rs[0].Verdict != broker.Unknown || !errors.Is(rs[0].Err, broker.ErrUnknownOutcome) || !errors.Is(rs[0].Err, context.DeadlineExceeded) {
			t.Errorf("in flight: %v", rs[0])
		}
		if rs[1].Verdict != broker.Refused || !errors.Is(rs[1].Err, broker.ErrUnavailable) {
			t.Errorf("queued: %v", rs[1])
		}
		if msgs[0].Time.IsZero() {
			t.Error("the caller's message has no time of its first attempt")
		}
		if r := <-other; r.Verdict != broker.Stored {
			t.Errorf("the other message of the batch: %v", r)
		}
		if rs[0].Verdict != broker.Unknown {
			t.Errorf("a receipt changed after it was returned: %v", rs[0])
		}
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := [][]string{{"first"}, {"other", "flies"}}; fmt.Sprint(p.sent()) != fmt.Sprint(want) {
			t.Errorf("sent %v, want %v", p.sent(), want)
		}
	})
}

// When nobody waits for a batch any more, it is cut.
func TestBatcherCutsAnOrphanedBatch(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		p := &fakePublisher{answer: slow(time.Hour)}
		b := broker.NewBatcher(p, 1, 10)
		start := time.Now()
		var wait sync.WaitGroup
		for i := range 3 {
			wait.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second)
				defer cancel()
				rs, err := b.Publish(ctx, broker.Message{ID: fmt.Sprint(i)})
				if rs[0].Verdict != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) {
					t.Errorf("%d: %v, %v", i, rs, err)
				}
			})
			synctest.Wait() // the first flies alone, the others share a batch
		}
		wait.Wait()
		synctest.Wait()
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("the lane was free after %s, want 3s", d)
		}
		if got := fmt.Sprint(p.sent()); got != "[[0] [1 2]]" {
			t.Errorf("sent %s", got)
		}
	})
}

// The same for messages of Go, whose contexts the Batcher watches itself.
func TestBatcherCutsAnOrphanedBatchOfGo(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		p := &fakePublisher{answer: slow(time.Hour)}
		b := broker.NewBatcher(p, 1, 10)
		start := time.Now()
		var at [3]time.Duration
		for i := range at {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second)
			defer cancel()
			b.Go(ctx, broker.Message{ID: fmt.Sprint(i)}, func(r broker.Receipt) {
				at[i] = time.Since(start)
				if !errors.Is(r.Err, broker.ErrUnknownOutcome) {
					t.Errorf("%d: %v", i, r)
				}
			})
			synctest.Wait()
		}
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(at); got != "[1s 3s 3s]" {
			t.Errorf("receipts after %s", got)
		}
	})
}

func TestBatcherRefusesWhatEndedInTheQueue(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		p := &fakePublisher{answer: slow(time.Minute)}
		b := broker.NewBatcher(p, 1, 10)
		b.Go(t.Context(), broker.Message{ID: "a"}, func(broker.Receipt) {})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		var got broker.Receipt
		b.Go(ctx, broker.Message{ID: "b"}, func(r broker.Receipt) { got = r })
		cancel()
		b.Go(t.Context(), broker.Message{ID: "c"}, func(broker.Receipt) {})
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got.Verdict != broker.Refused || !errors.Is(got.Err, context.Canceled) {
			t.Errorf("b: %v", got)
		}
		if want := [][]string{{"a"}, {"c"}}; fmt.Sprint(p.sent()) != fmt.Sprint(want) {
			t.Errorf("sent %v, want %v", p.sent(), want)
		}
	})
}

func TestBatcherCloseIsBounded(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		p := &fakePublisher{answer: slow(time.Hour)}
		b := broker.NewBatcher(p, 1, 10)
		var got [2]broker.Receipt
		for i := range got {
			b.Go(t.Context(), broker.Message{ID: fmt.Sprint(i)}, func(r broker.Receipt) { got[i] = r })
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := b.Close(ctx)
		if !errors.Is(err, broker.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		if d := time.Since(start); d != time.Second {
			t.Errorf("Close took %s", d)
		}
		synctest.Wait()
		if got[0].Verdict != broker.Unknown || !errors.Is(got[0].Err, broker.ErrUnknownOutcome) {
			t.Errorf("in flight: %v", got[0])
		}
		if got[1].Verdict != broker.Refused || !errors.Is(got[1].Err, broker.ErrClosed) {
			t.Errorf("queued: %v", got[1])
		}
		if again := b.Close(t.Context()); again != err {
			t.Errorf("second Close: %v", again)
		}
		rs, err := b.Publish(t.Context(), broker.Message{ID: "late"})
		if !errors.Is(err, broker.ErrClosed) || rs[0].Verdict != broker.Refused {
			t.Errorf("after Close: %v, %v", rs, err)
		}
		b.Go(t.Context(), broker.Message{ID: "late"}, func(r broker.Receipt) {
			if !errors.Is(r.Err, broker.ErrClosed) || r.Verdict != broker.Refused {
				t.Errorf("Go after Close: %v", r)
			}
		})
	})
}

// A publisher that answers short must not leave anybody without a receipt.
func TestBatcherDefectivePublisher(t *testing.T) {
	p := &fakePublisher{answer: func(context.Context, int, []broker.Message) []broker.Receipt { return nil }}
	b := broker.NewBatcher(p, 0, 0)
	rs, err := b.Publish(t.Context(), broker.Message{ID: "a"})
	if len(rs) != 1 || rs[0].Verdict != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) {
		t.Errorf("%v, %v", rs, err)
	}
	if rs, err := b.Publish(t.Context()); rs != nil || err != nil {
		t.Errorf("no messages: %v, %v", rs, err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestBatcherGoWantsDone(t *testing.T) {
	b := broker.NewBatcher(&fakePublisher{}, 1, 1)
	defer b.Close(t.Context())
	defer func() {
		if recover() == nil {
			t.Error("a nil done was taken")
		}
	}()
	b.Go(t.Context(), broker.Message{ID: "a"}, nil)
}

func TestBatcherConcurrentCloseAndPublish(t *testing.T) {
	for range 50 {
		p := &fakePublisher{}
		b := broker.NewBatcher(p, 3, 4)
		var wait sync.WaitGroup
		var ok, closed atomic.Int32
		for g := range 8 {
			wait.Go(func() {
				for i := range 50 {
					rs, err := b.Publish(t.Context(), broker.Message{ID: fmt.Sprint(g, i), Key: fmt.Sprint(g % 3)}, broker.Message{ID: fmt.Sprint(g, i, "x")})
					for _, r := range rs {
						switch {
						case r.Verdict == broker.Stored:
							ok.Add(1)
						case r.Verdict == broker.Refused && errors.Is(r.Err, broker.ErrClosed):
							closed.Add(1)
						default:
							t.Errorf("%v, %v", r, err)
						}
					}
				}
			})
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		wait.Wait()
		n := 0
		for _, ids := range p.sent() {
			n += len(ids)
		}
		if ok.Load()+closed.Load() != 800 || int(ok.Load()) != n {
			t.Errorf("%d stored, %d closed, %d sent", ok.Load(), closed.Load(), n)
		}
	}
}
