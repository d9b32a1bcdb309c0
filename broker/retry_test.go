package broker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/internal/bubbletest"
)

// script answers call n by its nth step, the last one for ever.
func script(steps ...func(n int) []broker.Receipt) func(context.Context, int, []broker.Message) []broker.Receipt {
	return func(_ context.Context, call int, msgs []broker.Message) []broker.Receipt {
		return steps[min(call, len(steps)-1)](len(msgs))
	}
}

func kind(err error) func(int) []broker.Receipt {
	return func(n int) []broker.Receipt { return refused(n, err) }
}

var fullJitter = func() float64 { return 1 }

func TestRetryVerdicts(t *testing.T) {
	const window = time.Minute
	tests := []struct {
		name    string
		window  time.Duration
		policy  broker.RetryPolicy
		steps   []func(int) []broker.Receipt
		calls   int
		verdict broker.Verdict
		errs    []error
	}{
		{"stored at once", window, broker.RetryPolicy{}, []func(int) []broker.Receipt{stored}, 1, broker.Stored, nil},
		{"unknown, then stored", window, broker.RetryPolicy{}, []func(int) []broker.Receipt{unknown, stored}, 2, broker.Stored, nil},
		{"unavailable and busy, then stored", window, broker.RetryPolicy{},
			[]func(int) []broker.Receipt{kind(broker.ErrUnavailable), kind(broker.ErrBusy), stored}, 3, broker.Stored, nil},
		{"a final refusal", window, broker.RetryPolicy{}, []func(int) []broker.Receipt{kind(broker.ErrTooLarge)}, 1, broker.Refused, []error{broker.ErrTooLarge}},
		{"closed", window, broker.RetryPolicy{}, []func(int) []broker.Receipt{kind(broker.ErrClosed)}, 1, broker.Refused, []error{broker.ErrClosed}},
		{"unknown, then refused for good", window, broker.RetryPolicy{},
			[]func(int) []broker.Receipt{unknown, kind(broker.ErrUnroutable)}, 2, broker.Unknown, []error{broker.ErrUnknownOutcome, broker.ErrUnroutable}},
		{"unknown, then unavailable for ever", window, broker.RetryPolicy{Attempts: 3},
			[]func(int) []broker.Receipt{unknown, kind(broker.ErrUnavailable)}, 3, broker.Unknown, []error{broker.ErrUnknownOutcome, broker.ErrUnavailable}},
		{"attempts used up", window, broker.RetryPolicy{Attempts: 4}, []func(int) []broker.Receipt{kind(broker.ErrBusy)}, 4, broker.Refused, []error{broker.ErrBusy}},
		{"no window: unknown is final", 0, broker.RetryPolicy{}, []func(int) []broker.Receipt{unknown, stored}, 1, broker.Unknown, []error{broker.ErrUnknownOutcome}},
		{"no window: surely not stored is retried", 0, broker.RetryPolicy{}, []func(int) []broker.Receipt{kind(broker.ErrUnavailable), stored}, 2, broker.Stored, nil},
		{"no window, copies allowed", 0, broker.RetryPolicy{AllowCopies: true}, []func(int) []broker.Receipt{unknown, stored}, 2, broker.Stored, nil},
		{"window of the policy", 0, broker.RetryPolicy{Window: window}, []func(int) []broker.Receipt{unknown, stored}, 2, broker.Stored, nil},
		{"an answer that is missing", window, broker.RetryPolicy{}, []func(int) []broker.Receipt{func(int) []broker.Receipt { return nil }, stored}, 2, broker.Stored, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				p := &fakePublisher{limits: broker.Limits{Window: tt.window}, answer: script(tt.steps...)}
				hooked := 0
				tt.policy.ErrorHook = func(err error) {
					hooked++
					if err == nil {
						t.Error("hook without an error")
					}
				}
				r := broker.Retry(p, tt.policy)
				defer r.Close(t.Context())
				rs, err := r.Publish(t.Context(), broker.Message{ID: "a"})
				if len(rs) != 1 || rs[0].Verdict != tt.verdict || rs[0].Err != err {
					t.Fatalf("%v, %v; want %s", rs, err, tt.verdict)
				}
				if (err == nil) != (tt.errs == nil) {
					t.Errorf("error %v", err)
				}
				for _, want := range tt.errs {
					if !errors.Is(err, want) {
						t.Errorf("error %v is no %v", err, want)
					}
				}
				if n := len(p.sent()); n != tt.calls {
					t.Errorf("%d attempts, want %d", n, tt.calls)
				}
				if hooked != tt.calls-1 {
					t.Errorf("the hook ran %d times for %d attempts", hooked, tt.calls)
				}
			})
		})
	}
}

// Of a batch only the failed messages are sent again, in their order, the very
// same each time.
func TestRetrySendsOnlyTheFailed(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		p := &fakePublisher{limits: broker.Limits{Window: time.Minute}}
		p.answer = func(_ context.Context, call int, msgs []broker.Message) []broker.Receipt {
			rs := stored(len(msgs))
			for i := range msgs {
				switch {
				case msgs[i].ID == "bad":
					rs[i] = refused(1, broker.ErrInvalid)[0]
				case call == 0 && i%2 == 1:
					rs[i] = unknown(1)[0]
				case call == 1 && i == 0:
					rs[i] = refused(1, broker.ErrBusy)[0]
				case call > 0:
					rs[i] = broker.Receipt{Verdict: broker.Duplicate, Position: broker.Position{Offset: uint64(call)}}
				}
			}
			return rs
		}
		r := broker.Retry(p, broker.RetryPolicy{ErrorHook: func(error) {}})
		msgs := make([]broker.Message, 6)
		for i := range msgs {
			msgs[i].ID = fmt.Sprint(i)
		}
		msgs[2].ID = "bad"
		rs, err := r.Publish(t.Context(), msgs...)
		if !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("error %v", err)
		}
		want := []broker.Verdict{broker.Stored, broker.Duplicate, broker.Refused, broker.Duplicate, broker.Stored, broker.Duplicate}
		for i := range rs {
			if rs[i].Verdict != want[i] {
				t.Errorf("%d: %s, want %s", i, rs[i].Verdict, want[i])
			}
		}
		if got, want := fmt.Sprint(p.sent()), "[[0 1 bad 3 4 5] [1 3 5] [1]]"; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		for _, call := range p.calls {
			for _, m := range call {
				if m.Time.IsZero() || !m.Time.Equal(msgs[1].Time) {
					t.Errorf("message %s was sent with time %s, the first attempt was %s", m.ID, m.Time, msgs[1].Time)
				}
			}
		}
	})
}

func TestRetryBackoff(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		var at []time.Duration
		start := time.Now()
		p := &fakePublisher{}
		p.answer = func(_ context.Context, call int, msgs []broker.Message) []broker.Receipt {
			at = append(at, time.Since(start))
			return refused(len(msgs), broker.ErrUnavailable)
		}
		r := broker.Retry(p, broker.RetryPolicy{Attempts: 6, Backoff: broker.Backoff{Min: time.Second, Max: 5 * time.Second}, Rand: fullJitter, ErrorHook: func(error) {}})
		if _, err := r.Publish(t.Context(), broker.Message{ID: "a"}); !errors.Is(err, broker.ErrUnavailable) {
			t.Error(err)
		}
		if got, want := fmt.Sprint(at), "[0s 1s 3s 7s 12s 17s]"; got != want {
			t.Errorf("attempts at %s, want %s", got, want)
		}
	})
}

// No attempt ends after first attempt + window - margin, whatever the broker
// does; past that the message says so and is Unknown.
func TestRetryWindow(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		const window, margin = 20 * time.Second, 2 * time.Second
		start := time.Now()
		var last time.Duration
		p := &fakePublisher{limits: broker.Limits{Window: window}}
		p.answer = func(ctx context.Context, _ int, msgs []broker.Message) []broker.Receipt {
			<-ctx.Done() // the connection is a black hole
			last = time.Since(start)
			return unknown(len(msgs))
		}
		r := broker.Retry(p, broker.RetryPolicy{Attempts: -1, PerTry: 7 * time.Second, Rand: fullJitter, ErrorHook: func(error) {}})
		rs, err := r.Publish(t.Context(), broker.Message{ID: "a"})
		if rs[0].Verdict != broker.Unknown || !errors.Is(err, broker.ErrWindowExceeded) || !errors.Is(err, broker.ErrUnknownOutcome) {
			t.Errorf("%v, %v", rs, err)
		}
		if last > window-margin || last < window-margin-time.Second {
			t.Errorf("the last attempt ended after %s, want just before %s", last, window-margin)
		}
		if d := time.Since(start); d > window-margin {
			t.Errorf("Publish took %s", d)
		}
	})
}

// The margin is never so large that nothing can be sent.
func TestRetryMarginIsBounded(t *testing.T) {
	p := &fakePublisher{limits: broker.Limits{Window: time.Second}}
	r := broker.Retry(p, broker.RetryPolicy{Margin: time.Hour})
	if _, err := r.Publish(t.Context(), broker.Message{ID: "a"}); err != nil {
		t.Error(err)
	}
}

func TestRetryOverARestart(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		p := &fakePublisher{limits: broker.Limits{Window: time.Minute}, answer: script(unknown, stored)}
		old := broker.Message{ID: "old", Time: time.Now().Add(-time.Hour)}
		fresh := broker.Message{ID: "fresh", Time: time.Now().Add(-time.Second)}
		ahead := broker.Message{ID: "ahead", Time: time.Now().Add(time.Hour)}
		r := broker.Retry(p, broker.RetryPolicy{ErrorHook: func(error) {}})
		rs, err := r.Publish(t.Context(), old, fresh, ahead)
		if rs[0].Verdict != broker.Unknown || !errors.Is(rs[0].Err, broker.ErrWindowExceeded) || !errors.Is(err, broker.ErrWindowExceeded) {
			t.Errorf("a first attempt an hour ago: %v, %v", rs[0], err)
		}
		if rs[1].Verdict != broker.Stored || rs[2].Verdict != broker.Stored {
			t.Errorf("%v", rs[1:])
		}
		if got, want := fmt.Sprint(p.sent()), "[[fresh ahead] [fresh ahead]]"; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		// With a time that isn't the first attempt's, the guard counts from here.
		r = broker.Retry(p, broker.RetryPolicy{EventTime: true, ErrorHook: func(error) {}})
		if rs, err := r.Publish(t.Context(), old); err != nil || rs[0].Verdict != broker.Stored {
			t.Errorf("%v, %v", rs, err)
		}
	})
}

// A second Publish of the same slice counts on from the first one's attempt.
func TestRetryOfTheSameSlice(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		p := &fakePublisher{limits: broker.Limits{Window: time.Minute}, answer: script(unknown)}
		r := broker.Retry(p, broker.RetryPolicy{Attempts: 1})
		msgs := []broker.Message{{ID: "a"}}
		if _, err := r.Publish(t.Context(), msgs...); !errors.Is(err, broker.ErrUnknownOutcome) || errors.Is(err, broker.ErrWindowExceeded) {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := r.Publish(t.Context(), msgs...); !errors.Is(err, broker.ErrWindowExceeded) {
			t.Error(err)
		}
		if n := len(p.sent()); n != 1 {
			t.Errorf("%d attempts", n)
		}
	})
}

func TestRetryElapsed(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		p := &fakePublisher{answer: script(kind(broker.ErrBusy))}
		start := time.Now()
		r := broker.Retry(p, broker.RetryPolicy{Attempts: -1, Elapsed: 10 * time.Second, Rand: fullJitter, ErrorHook: func(error) {}})
		rs, err := r.Publish(t.Context(), broker.Message{ID: "a"})
		if rs[0].Verdict != broker.Refused || !errors.Is(err, broker.ErrBusy) || errors.Is(err, broker.ErrWindowExceeded) {
			t.Errorf("%v, %v", rs, err)
		}
		if d := time.Since(start); d > 10*time.Second || d < 9*time.Second {
			t.Errorf("took %s", d)
		}
	})
}

// Errors count in English.
func TestRetrySaysHowOften(t *testing.T) {
	for attempts, want := range map[int]string{1: "after 1 attempt: ", 2: "after 2 attempts: "} {
		bubbletest.Run(t, func(t *testing.T) {
			p := &fakePublisher{answer: script(kind(broker.ErrBusy))}
			r := broker.Retry(p, broker.RetryPolicy{Attempts: attempts, ErrorHook: func(error) {}})
			if _, err := r.Publish(t.Context(), broker.Message{ID: "a"}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q in it", err, want)
			}
		})
	}
}

// The context ends while an attempt is under way, and in a pause.
func TestRetryContextEnds(t *testing.T) {
	for _, inPause := range []bool{false, true} {
		t.Run(fmt.Sprint("in pause ", inPause), func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				p := &fakePublisher{limits: broker.Limits{Window: time.Hour}}
				p.answer = func(ctx context.Context, call int, msgs []broker.Message) []broker.Receipt {
					if inPause {
						return unknown(len(msgs))
					}
					<-ctx.Done()
					return refused(len(msgs), broker.ErrUnavailable)
				}
				why := errors.New("the caller had enough")
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(why) })
				start := time.Now()
				r := broker.Retry(p, broker.RetryPolicy{Backoff: broker.Backoff{Min: time.Minute, Max: time.Minute}, Rand: fullJitter, ErrorHook: func(error) {}})
				rs, err := r.Publish(ctx, broker.Message{ID: "a"})
				if d := time.Since(start); d != time.Second {
					t.Errorf("returned after %s", d)
				}
				if !errors.Is(err, why) {
					t.Errorf("%v", err)
				}
				want := broker.Verdict(broker.Refused)
				if inPause {
					want = broker.Unknown
				}
				if rs[0].Verdict != want {
					t.Errorf("%v", rs[0])
				}
			})
		})
	}
}

func TestRetryClose(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		p := &fakePublisher{answer: script(kind(broker.ErrUnavailable))}
		r := broker.Retry(p, broker.RetryPolicy{Backoff: broker.Backoff{Min: time.Hour, Max: time.Hour}, Rand: fullJitter, ErrorHook: func(error) {}})
		done := make(chan error)
		go func() {
			_, err := r.Publish(context.Background(), broker.Message{ID: "a"})
			done <- err
		}()
		synctest.Wait()
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, broker.ErrClosed) || !errors.Is(err, broker.ErrUnavailable) {
			t.Errorf("a Publish in its pause: %v", err)
		}
		if err := r.Close(t.Context()); err != nil || p.closed != 1 {
			t.Errorf("second Close: %v, %d", err, p.closed)
		}
	})
}

// The clock that the window is measured by is the broker's where it has one.
func TestRetryReadsThePublishersClock(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	p := &fakePublisher{limits: broker.Limits{Window: time.Minute}, now: func() time.Time { return at }}
	b := broker.NewBatcher(broker.Retry(p, broker.RetryPolicy{}), 1, 10)
	defer b.Close(t.Context())
	msgs := []broker.Message{{ID: "a"}}
	if _, err := b.Publish(t.Context(), msgs...); err != nil {
		t.Fatal(err)
	}
	if !msgs[0].Time.Equal(at) {
		t.Errorf("stamped %s", msgs[0].Time)
	}
	at = at.Add(2 * time.Minute)
	if _, err := b.Publish(t.Context(), msgs...); !errors.Is(err, broker.ErrWindowExceeded) {
		t.Errorf("two minutes later by the broker's clock: %v", err)
	}
	var under *fakePublisher
	if !b.As(&under) || under != p || b.Limits().Window != time.Minute {
		t.Error("As or Limits don't reach the publisher")
	}
}
