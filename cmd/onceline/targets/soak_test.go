package targets_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/internal/bubbletest"
)

// soakMemory soaks a broker in this process, healthy or broken on purpose, in a
// bubble whose time costs nothing. strike is the disturbance.
func soakMemory(t *testing.T, strike func(context.Context, *memory.Broker) error, check func(report.Soak), options ...memory.Option) {
	t.Helper()
	bubbletest.Run(t, func(t *testing.T) {
		b := memory.New(append([]memory.Option{memory.WithLease(2 * time.Second)}, options...)...)
		defer b.Close()
		d := conformance.Disturbance{Name: "made up", Lasts: 2 * time.Second,
			Strike: func(ctx context.Context, _ broker.Entity, tell func(string, ...any)) error {
				tell("it begins")
				return strike(ctx, b)
			}}
		i := &conformance.Instance{Open: func(context.Context) (broker.Conn, error) { return b.Conn(), nil }}
		target := targetOfMemory()
		check(conformance.Soak(t.Context(), target, i, d, conformance.SoakOptions{Messages: 2000, Limit: time.Minute}))
	})
}

func targetOfMemory() conformance.Target {
	return conformance.Target{Name: "memory", Broker: "memory", Boundary: memory.Boundary(), Lease: 2 * time.Second, WishLease: true}
}

func killMemory(_ context.Context, b *memory.Broker) error { b.Kill(); return nil }

// killFull kills the broker when messages wait there, as it is slow to deliver.
func killFull(_ context.Context, b *memory.Broker) error {
	slow := b.Inject(memory.Fault{Op: memory.Receive, Kind: memory.Delay, Delay: time.Second})
	time.Sleep(500 * time.Millisecond) // of the bubble
	b.Kill()
	slow.Remove()
	return slow.Err()
}

// loseAnswers loses the answers to some publishes, as a connection does that ends.
func loseAnswers(_ context.Context, b *memory.Broker) error {
	return b.Inject(memory.Fault{Op: memory.Publish, Kind: memory.LoseResponse, Times: 4}).Err()
}

func TestSoak(t *testing.T) {
	t.Parallel()
	soakMemory(t, killMemory, func(s report.Soak) {
		if s.Verdict != report.Equal || s.Stored+s.Duplicates != 2000 || s.Received != 2000 || s.Confirmed != 2000 || s.Lost != 0 || s.Copies != 0 {
			t.Errorf("%+v", s)
		}
		if s.Target != "memory" || s.Disturbance != "made up" || s.Basis != report.Modelled || s.Seconds <= 2 || s.Rate <= 0 || s.GapSeconds <= 0 {
			t.Errorf("%+v", s)
		}
		if text := strings.Join(s.Notes, "\n"); !strings.Contains(text, "it begins") || !strings.Contains(text, "whole again") {
			t.Errorf("notes: %s", text)
		}
	})
}

// A publisher that has no answer asks again under the same ID, and is told that the
// message is there.
func TestSoakCountsDuplicates(t *testing.T) {
	t.Parallel()
	soakMemory(t, loseAnswers, func(s report.Soak) {
		if s.Verdict != report.Equal || s.Unknown == 0 || s.Retried == 0 || s.Duplicates != s.Retried || s.Copies != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// What is broken is found.
func TestSoakFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		strike func(context.Context, *memory.Broker) error
		option memory.Option
		found  func(report.Soak) int
	}{
		{"an ack before it is safe", killFull, memory.WithoutDurableAck(), func(s report.Soak) int { return s.Lost }},
		{"an ID without its message", loseAnswers, memory.WithoutLostResponseStored(), func(s report.Soak) int { return s.Lost }},
		{"acks that don't last", killMemory, memory.WithoutFinalSettle(), func(s report.Soak) int { return s.RedeliveredAfterConfirmed }},
		{"no dedup", loseAnswers, memory.WithoutDedup(), func(s report.Soak) int { return s.Copies }},
	} {
		t.Run(c.name, func(t *testing.T) {
			soakMemory(t, c.strike, func(s report.Soak) {
				if s.Verdict != report.Weaker || c.found(s) == 0 {
					t.Errorf("%+v", s)
				}
			}, c.option)
		})
	}
}

// What a broker holds back until it has another leader is not lost, and is counted.
func TestSoakTellsStrandedFromLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		elect    func(broker.Conn) error
		verdict  report.Verdict
		stranded int
		reason   string
	}{
		{"it comes", func(c broker.Conn) error { return c.Close(context.Background()) }, report.Equal, 30, "30 came only with the next election"},
		{"it doesn't", func(broker.Conn) error { return nil }, report.Weaker, 0, "30 with a good receipt never came"},
		{"nobody is elected", func(broker.Conn) error { return errors.New("no majority") }, report.NotVerifiable, 0, "the election failed: no majority"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				b := memory.New(memory.WithoutLeaseExpiry())
				defer b.Close()
				thief := b.Conn()
				d := conformance.Disturbance{Name: "made up", Lasts: time.Second,
					Strike: func(ctx context.Context, e broker.Entity, _ func(string, ...any)) error {
						r, err := thief.OpenReceiver(ctx, e.Subscription)
						for got := 0; err == nil && got < 30; {
							var ds []broker.Delivery
							ds, err = r.Receive(ctx, 30-got)
							got += len(ds)
						}
						return err
					},
					Elect: func(context.Context, broker.Entity) error { return c.elect(thief) }}
				i := &conformance.Instance{Open: func(context.Context) (broker.Conn, error) { return b.Conn(), nil }}
				s := conformance.Soak(t.Context(), targetOfMemory(), i, d, conformance.SoakOptions{Messages: 2000})
				if s.Verdict != c.verdict || s.Stranded != c.stranded || !strings.Contains(s.Reason, c.reason) {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// What could not be told is no pass, and nothing hangs.
func TestSoakThatCanNotTell(t *testing.T) {
	t.Parallel()
	t.Run("the disturbance fails", func(t *testing.T) {
		soakMemory(t, func(context.Context, *memory.Broker) error { return errors.New("no such node") }, func(s report.Soak) {
			if s.Verdict != report.NotVerifiable || !strings.Contains(s.Reason, "no such node") || s.Received != 2000 {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("the disturbance never ends", func(t *testing.T) {
		soakMemory(t, func(ctx context.Context, _ *memory.Broker) error { <-ctx.Done(); return context.Cause(ctx) }, func(s report.Soak) {
			if s.Verdict != report.NotVerifiable || !strings.Contains(s.Reason, "longer than 1m0s") || s.Seconds < 60 || s.Seconds > 90 {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("the broker takes nothing more", func(t *testing.T) {
		down := func(_ context.Context, b *memory.Broker) error {
			return b.Inject(memory.Fault{Op: memory.Publish, Kind: memory.Error}).Err()
		}
		soakMemory(t, down, func(s report.Soak) {
			if s.Verdict != report.NotVerifiable || s.Unresolved == 0 || s.Refused == 0 || s.Lost != 0 || s.Seconds > 90 {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("the broker answers nothing more", func(t *testing.T) {
		down := func(_ context.Context, b *memory.Broker) error {
			return errors.Join(b.Inject(memory.Fault{Op: memory.Publish, Kind: memory.LoseRequest}).Err(),
				b.Inject(memory.Fault{Op: memory.Settle, Kind: memory.LoseRequest}).Err())
		}
		soakMemory(t, down, func(s report.Soak) {
			if s.Verdict != report.NotVerifiable || s.Unresolved == 0 || s.Unknown == 0 || s.Seconds > 90 {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("a call never returns", func(t *testing.T) {
		bubbletest.Run(t, func(t *testing.T) {
			b := memory.New()
			defer b.Close()
			release := make(chan struct{})
			i := &conformance.Instance{Open: func(context.Context) (broker.Conn, error) { return b.Conn(), nil }}
			d := conformance.Disturbance{Name: "made up",
				Strike: func(context.Context, broker.Entity, func(string, ...any)) error { <-release; return nil }}
			s := conformance.Soak(t.Context(), targetOfMemory(), i, d, conformance.SoakOptions{Messages: 2000, Limit: time.Minute})
			if s.Verdict != report.NotVerifiable || !strings.Contains(s.Reason, "calls had not returned") || s.Received != 2000 || s.Seconds > 95 {
				t.Errorf("%+v", s)
			}
			close(release)
			synctest.Wait()
		})
	})
	t.Run("nobody can connect", func(t *testing.T) {
		bubbletest.Run(t, func(t *testing.T) {
			i := &conformance.Instance{Open: func(context.Context) (broker.Conn, error) { return nil, broker.ErrUnavailable }}
			s := conformance.Soak(t.Context(), targetOfMemory(), i, conformance.Disturbance{Name: "made up"}, conformance.SoakOptions{})
			if s.Verdict != report.Failed || !strings.Contains(s.Reason, "unavailable") || s.Seconds > 60 {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("the caller ends it", func(t *testing.T) {
		bubbletest.Run(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			b := memory.New()
			defer b.Close()
			i := &conformance.Instance{Open: func(context.Context) (broker.Conn, error) { return b.Conn(), nil }}
			d := conformance.Disturbance{Name: "made up", Lasts: time.Hour,
				Strike: func(ctx context.Context, _ broker.Entity, _ func(string, ...any)) error {
					<-ctx.Done()
					return context.Cause(ctx)
				}}
			s := conformance.Soak(ctx, targetOfMemory(), i, d, conformance.SoakOptions{Messages: 2000})
			if s.Verdict != report.NotVerifiable || s.Seconds < 5 || s.Seconds > 15 {
				t.Errorf("%+v", s)
			}
		})
	})
}
