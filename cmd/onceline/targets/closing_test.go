package targets_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/cmd/onceline/targets"
)

// TestCloseInNoTime: a receiver that is closed with no time left, while a Receive is
// under way at any of its points, ends that Receive, and whatever either of them has
// begun beside it ends too.
func TestCloseInNoTime(t *testing.T) {
	t.Parallel()
	const rounds = 60
	for _, target := range targets.Embedded() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			i, err := target.Start(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if i.Close != nil {
				defer func() {
					if err := i.Close(context.WithoutCancel(ctx)); err != nil {
						t.Error(err)
					}
				}()
			}
			c, err := i.Open(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := c.Close(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}()
			e := broker.Entity{Topic: "closing", Subscription: "closing/closing"}
			if i.Entity != nil {
				e = i.Entity("closing")
			}
			if err := c.Ensure(ctx, e); err != nil {
				t.Fatal(err)
			}
			p, err := c.OpenPublisher(ctx, e.Topic)
			if err != nil {
				t.Fatal(err)
			}
			gone, end := context.WithCancel(ctx)
			end()
			for round := range rounds {
				if round%3 == 2 { // it may be on its way by then
					if _, err := p.Publish(ctx, broker.Message{ID: fmt.Sprint("m", round), Body: []byte("body")}); err != nil {
						t.Fatal(err)
					}
				}
				r, err := c.OpenReceiver(ctx, e.Subscription)
				if err != nil {
					t.Fatal(err)
				}
				received := make(chan error, 1)
				go func() {
					_, err := r.Receive(ctx, 1)
					received <- err
				}()
				<-time.After(time.Duration(round*round) * time.Microsecond)
				_ = r.Close(gone) // what it couldn't do in no time, it says
				if err := <-received; err != nil && !errors.Is(err, broker.ErrClosed) {
					t.Fatalf("round %d: %v", round, err)
				}
			}
		})
	}
}
