package servicebus

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// A hundred opens and closes, and fifty cancelled receives, leave no goroutine
// (TestMain) and no message that is locked.
func TestOpenClose(t *testing.T) {
	t.Parallel()
	const rounds = 100
	for _, kind := range []string{"queue", "sessions"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			n, _, e, p, _ := ends(t, func(e *broker.Entity) { e.Ordered = kind == "sessions" })
			for i := range rounds {
				c := n.dial(t)
				r := receiverOf(t, c, e.Subscription)
				q := publisherOf(t, c, e.Topic)
				if i%2 == 0 {
					ctx, cancel := context.WithCancel(t.Context())
					stopped := make(chan struct{})
					go func() {
						defer close(stopped)
						_, _ = r.Receive(ctx, 8) // what it gets, Close gives back
					}()
					go cancel()
					if _, err := p.Publish(t.Context(), keyed(fmt.Sprint("m", i), "k")); err != nil {
						t.Fatal(err)
					}
					<-stopped
				}
				if err := c.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := q.Publish(t.Context(), message("y")); !errors.Is(err, broker.ErrClosed) {
					t.Fatalf("publish after close: %v", err)
				}
				if _, err := r.Receive(t.Context(), 1); !errors.Is(err, broker.ErrClosed) {
					t.Fatalf("receive after close: %v", err)
				}
			}
			begin := time.Now()
			c := n.dial(t)
			r := receiverOf(t, c, e.Subscription)
			seen := map[string]bool{}
			for len(seen)+n.counts(t, e.Topic).DeadLettered < rounds/2 {
				ds := receive(t, r, rounds/2, 2*time.Second)
				if len(ds) == 0 {
					t.Fatalf("%d came, %+v", len(seen), n.counts(t, e.Topic))
				}
				for i := range ds {
					seen[ds[i].ID] = true
				}
				ack(t, ds...)
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("it took %v, with a lock of a minute", took)
			}
		})
	}
}

func TestCloseEndsReceive(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"queue", "sessions"} {
		_, _, _, p, r := ends(t, func(e *broker.Entity) { e.Ordered = kind == "sessions" })
		publish(t, p, keyed("x", "k"))
		ack(t, *receiveOne(t, r))
		out := make(chan error, 1)
		go func() {
			_, err := r.Receive(context.Background(), 1)
			out <- err
		}()
		begin := time.Now()
		closing(t, r)
		select {
		case err := <-out:
			wantErr(t, err, broker.ErrClosed)
		case <-time.After(5 * time.Second):
			t.Fatal("Receive goes on")
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v", took)
		}
	}
}

// A second receiver has at once what the first had in hand.
func TestCloseGivesBack(t *testing.T) {
	t.Parallel()
	_, c, e, p, r := ends(t)
	publish(t, p, messages(20, "m")...)
	ds := receiveAll(t, r, 20)
	ack(t, ds[:5]...)
	closing(t, r)
	next := receiverOf(t, c, e.Subscription)
	begin := time.Now()
	for _, d := range receiveAll(t, next, 15) {
		if d.Attempt.Number != 2 {
			t.Errorf("%q at attempt %d", d.ID, d.Attempt.Number)
		}
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("it took %v", took)
	}
	o, err := ds[7].Ack(t.Context())
	wantErr(t, err, broker.ErrLeaseLost)
	if o.State != broker.LeaseLost {
		t.Errorf("%v", o.State)
	}
}

// Messages that come while a receiver with open credit closes are given back.
func TestCloseUnderTraffic(t *testing.T) {
	t.Parallel()
	n, c, e, p, _ := ends(t)
	stop := make(chan struct{})
	sent := make(chan int, 1)
	go func() {
		i := 0
		defer func() { sent <- i }()
		for ; ; i++ {
			select {
			case <-stop:
				return
			default:
				if _, err := p.Publish(context.Background(), message(fmt.Sprint("m", i))); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	seen := map[string]bool{}
	for range 20 {
		r := receiverOf(t, c, e.Subscription)
		for _, d := range receive(t, r, 3, time.Second) {
			ack(t, d)
			seen[d.ID] = true
		}
		closing(t, r)
	}
	close(stop)
	total := <-sent
	r := receiverOf(t, c, e.Subscription)
	for len(seen)+n.counts(t, e.Topic).DeadLettered < total {
		ds := receive(t, r, 100, 2*time.Second)
		if len(ds) == 0 {
			t.Fatalf("%d of %d came, %+v", len(seen), total, n.counts(t, e.Topic))
		}
		s := make([]broker.Settlement, len(ds))
		for i := range ds {
			s[i] = broker.Settlement{Delivery: &ds[i], Action: broker.Ack}
			seen[ds[i].ID] = true
		}
		if err := r.Settle(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		for i := range s {
			if s[i].Outcome.State != broker.Confirmed {
				t.Errorf("ack %q: %+v", ds[i].ID, s[i].Outcome)
			}
		}
	}
}

func TestAs(t *testing.T) {
	t.Parallel()
	_, c, _, p, r := ends(t)
	var client *azservicebus.Client
	var adm *admin.Client
	var sender *azservicebus.Sender
	var rcv *azservicebus.Receiver
	if !c.As(&client) || client == nil || !c.As(&adm) || adm == nil || !p.As(&sender) || sender == nil || !r.As(&rcv) || rcv == nil || !p.As(&client) {
		t.Error("no handle")
	}
	var s *string
	if c.As(&s) || p.As(&s) || r.As(&s) {
		t.Error("a string?")
	}
	publish(t, p, message("x"))
	d := receiveOne(t, r)
	var m *azservicebus.ReceivedMessage
	if !d.As(&m) || m.MessageID != "x" || d.As(&s) {
		t.Error("no message")
	}
	ack(t, *d)
}

// Through New the client is the caller's and stays open.
func TestNewLeavesClientOpen(t *testing.T) {
	t.Parallel()
	n := start(t)
	client, err := azservicebus.NewClientFromConnectionString("Endpoint=sb://"+n.host+";SharedAccessKeyName=k;SharedAccessKey=v;UseDevelopmentEmulator=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, client)
	e := entity()
	n.makes(t, e)
	for range 2 {
		c, err := New(client)
		if err != nil {
			t.Fatal(err)
		}
		publish(t, publisherOf(t, c, e.Topic), message(fmt.Sprint("m", names.Add(1))))
		ack(t, *receiveOne(t, receiverOf(t, c, e.Subscription)))
		if err := c.Ensure(t.Context(), e); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("ensure without an admin client: %v", err)
		}
		closing(t, c)
	}
	if _, err := New(client, ApplicationID("x")); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("an option of Dial: %v", err)
	}
	if _, err := New(nil); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("New(nil): %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := n.dial(t)
	if _, err := c.OpenPublisher(t.Context(), "missing"); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("%v", err)
	}
	for _, name := range []string{"missing", "missing/sub", "missing/$deadletterqueue"} {
		if _, err := c.OpenReceiver(t.Context(), name); !errors.Is(err, broker.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"/x", "a//b", "a b", "$deadletterqueue", "a/$deadletterqueue/x"} {
		if _, err := c.OpenReceiver(t.Context(), name); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e := entity()
	n.makes(t, e)
	ask := broker.StartFrom(func(string) (broker.Position, bool) { return broker.Position{}, false })
	if _, err := c.OpenReceiver(t.Context(), e.Topic, ask); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	closing(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := c.OpenPublisher(ctx, e.Topic); !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("nobody listens: %v", err)
	}
}

var _ driver.Clock = (*conn)(nil)
