package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/internal/bubbletest"
)

// TestLeaseTakenOver: an effect is told that another holder may have been at it, and so
// is who called; the other one, which goes on, is told that it has lost the message.
func TestLeaseTakenOver(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		s := newFakeLeases()
		s.broken = func(call string) (error, error) {
			if call == "extend" { // the first holder is cut off
				return dedup.ErrLost, nil
			}
			return nil, nil
		}
		l := dedup.NewLease(s, "c", dedup.LeaseOptions{Lease: 3 * time.Second, Attempts: 1})
		var mu sync.Mutex
		var told []bool
		tell := func(ctx context.Context) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, dedup.TakenOver(ctx))
		}
		tell(t.Context())
		first := make(chan dedup.LeaseResult, 1)
		go func() {
			first <- l.OnceBatch(t.Context(), []dedup.Key{{ID: "a"}}, func(ctx context.Context, _ int, _ int64) ([]byte, error) {
				tell(ctx)
				time.Sleep(4 * time.Second) // it doesn't look at ctx
				return []byte("first"), nil
			})[0]
		}()
		time.Sleep(3500 * time.Millisecond)
		second := l.OnceBatch(t.Context(), []dedup.Key{{ID: "a"}, {ID: "a"}, {ID: "b"}}, func(ctx context.Context, _ int, _ int64) ([]byte, error) {
			tell(ctx)
			return []byte("second"), nil
		})
		if got := fmt.Sprint(told); got != "[false false true false]" {
			t.Errorf("effects were told %s", got)
		}
		if !second[0].TakenOver || second[0].Outcome != dedup.Applied || !second[1].TakenOver || second[1].Outcome != dedup.Duplicate || second[2].TakenOver {
			t.Errorf("%+v", second)
		}
		if r := <-first; r.Outcome != dedup.Unknown || !errors.Is(r.Err, broker.ErrLeaseLost) || r.TakenOver {
			t.Errorf("who was taken over: %+v", r)
		}
		if outcome, result, err := l.Once(t.Context(), dedup.Key{ID: "a"}, nil); outcome != dedup.Duplicate || string(result) != "second" || err != nil {
			t.Errorf("%v, %q, %v", outcome, result, err)
		}
	})
}
