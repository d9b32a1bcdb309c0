package nats

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/internal/bubbletest"
)

// A question that nobody answers, as while a stream has no leader, is asked again.
func TestAskedUntilAnswered(t *testing.T) {
	t.Parallel()
	bubbletest.Run(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		asked, start := 0, time.Now()
		got, err := ask(ctx, func(ctx context.Context) (int, error) {
			if asked++; asked < 8 {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return 42, nil
		})
		if err != nil || got != 42 || asked != 8 || time.Since(start) != 7*askAgain {
			t.Errorf("%d, %v after %d questions in %s", got, err, asked, time.Since(start))
		}
	})
}

func TestAskedNoLongerThanMayBe(t *testing.T) {
	t.Parallel()
	silence := func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
	bubbletest.Run(t, func(t *testing.T) {
		start := time.Now()
		if _, err := ask(t.Context(), silence); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != askTime {
			t.Errorf("without a deadline: %v after %s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		start = time.Now()
		if _, err := ask(ctx, silence); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 20*time.Second {
			t.Errorf("with one: %v after %s", err, time.Since(start))
		}
		// An answer that is an error is an answer.
		asked := 0
		if _, err := ask(t.Context(), func(context.Context) (int, error) { asked++; return 0, broker.ErrNotFound }); !errors.Is(err, broker.ErrNotFound) || asked != 1 {
			t.Errorf("%v after %d questions", err, asked)
		}
	})
}
