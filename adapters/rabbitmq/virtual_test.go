package rabbitmq

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/internal/bubbletest"
	emulator "github.com/onceline/onceline/localstack/rabbitmq"
)

// TestVirtualTime lets half an hour of lease pass in no time, over connections in
// memory.
func TestVirtualTime(t *testing.T) {
	t.Parallel()
	bubbletest.Run(t, func(t *testing.T) {
		s := emulator.New()
		served := make(chan struct{}, 100)
		dial := func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				s.ServeConn(server)
				served <- struct{}{}
			}()
			return client, nil
		}
		c, err := Dial(t.Context(), "rabbitmq://localhost/", Dialer(dial), quiet())
		if err != nil {
			t.Fatal(err)
		}
		e := broker.Entity{Topic: "t", Subscription: "t/s", Lease: 30 * time.Minute}
		if err := c.Ensure(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		publish(t, p, messages(2, 0)...)
		ds := receive(t, r, 2)
		time.Sleep(29 * time.Minute)
		wantStates(t, settle(t, r, broker.Ack, ds[0]), broker.Sent)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		other := receiverOf(t, c, e.Subscription)
		again, err := other.Receive(ctx, 2)
		if err != nil || len(again) != 1 || again[0].ID != "m-1" {
			t.Fatal(again, err)
		}
		if waited := time.Since(begin); waited < 59*time.Second || waited > 61*time.Second {
			t.Fatalf("it came after %s", waited)
		}
		wantStates(t, settle(t, r, broker.Ack, ds[1]), broker.LeaseLost)
		wantStates(t, settle(t, other, broker.Ack, again...), broker.Sent)
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		<-served
		<-served
	})
}
