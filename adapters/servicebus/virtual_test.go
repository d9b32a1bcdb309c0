package servicebus

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/internal/bubbletest"
	emulator "github.com/onceline/onceline/localstack/servicebus"
)

// virtually runs a test in time that isn't real, with a server behind a pipe: what
// waits takes no time, and as long as it should.
func virtually(t *testing.T, test func(t *testing.T, s *emulator.Server, c broker.Conn), opts ...Option) {
	t.Helper()
	bubbletest.Run(t, func(t *testing.T) {
		s := emulator.New()
		defer closing(t, s)
		client, err := azservicebus.NewClientFromConnectionString("Endpoint=sb://127.0.0.1;SharedAccessKeyName=k;SharedAccessKey=v;UseDevelopmentEmulator=true",
			&azservicebus.ClientOptions{NewWebSocketConn: func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
				ours, theirs := net.Pipe()
				s.ServeConn(theirs)
				return ours, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer closing(t, client)
		c, err := New(client, opts...)
		if err != nil {
			t.Fatal(err)
		}
		defer closing(t, c)
		test(t, s, c)
	})
}

// The adapter runs in time that isn't real: a lock of five minutes, and a window of
// ten, pass at once.
func TestVirtualTime(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, s *emulator.Server, c broker.Conn) {
		if err := s.CreateQueue("q", emulator.QueueProperties{LockDuration: 5 * time.Minute, DuplicateDetection: true, Window: 10 * time.Minute}); err != nil {
			t.Fatal(err)
		}
		p, r := publisherOf(t, c, "q"), receiverOf(t, c, "q")
		begin := time.Now()
		publish(t, p, message("x"))
		held := receiveOne(t, r)
		if left := held.Lease.Sub(begin); left < 5*time.Minute-time.Second || left > 5*time.Minute+time.Second {
			t.Errorf("lease left: %v", left)
		}
		ds := receive(t, r, 1, time.Hour)
		if took := time.Since(begin); len(ds) != 1 || ds[0].Attempt.Number != 2 || took < 5*time.Minute || took > 6*time.Minute {
			t.Fatalf("%d came after %v", len(ds), took)
		}
		ack(t, ds[0])
		publish(t, p, message("x"))
		if ds = receive(t, r, 1, time.Minute); len(ds) != 0 {
			t.Error("stored again within the window")
		}
		time.Sleep(10 * time.Minute)
		publish(t, p, message("x"))
		ack(t, *receiveOne(t, r))
	})
}

// A pull that nothing comes to ends after a quarter of the lease, from which the
// lease of what comes is counted, and the next one has a quarter of its own.
func TestPullLap(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, s *emulator.Server, c broker.Conn) {
		const lease = 20 * time.Second
		if err := s.CreateQueue("q", emulator.QueueProperties{LockDuration: lease}); err != nil {
			t.Fatal(err)
		}
		d, err := connOf(t, c).OpenReceiver(t.Context(), "q", broker.ReceiverOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer closing(t, d)
		r := d.(*receiver)
		r.lease = lease
		for range 3 {
			begin := time.Now()
			ms, asked, err := r.pull(t.Context(), r.box, 1)
			if took := time.Since(begin); len(ms) != 0 || !cancelled(err) || !asked.Equal(begin) || took != lease/4 {
				t.Errorf("%d came, %v, after %v", len(ms), err, took)
			}
		}
	})
}
