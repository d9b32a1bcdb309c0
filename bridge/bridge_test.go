package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/bridge"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/internal/bubbletest"
)

func TestMoves(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, entity)
		defer r.close()
		r.publish(500, "", "a", "b", "c")
		stats, err := r.drain(bridge.Options{Batch: 20})
		must(t, err)
		ds := r.arrived()
		exact(t, ds, 500)
		if stats.Moved() != 500 || stats.Stored != 500 || stats.Settled != 500 || stats.Errors != 0 || stats.InHand != 0 {
			t.Errorf("%+v", stats)
		}
		for i := range ds {
			d := &ds[i]
			var n int
			fmt.Sscan(d.Headers.Get("n"), &n)
			if d.Time.UnixMilli() != 1700000000000+int64(n) || string(d.Body) != "body" || len(d.Headers) != 1 || d.Copy != "" {
				t.Fatalf("changed on its way: %+v", d.Message)
			}
		}
	})
}

// TestExact: whatever is lost on either side, each message is at the far side once, in
// the order of its key.
func TestExact(t *testing.T) {
	type side int
	const far, source side = 0, 1
	for _, c := range []struct {
		name string
		on   side
		f    memory.Fault
	}{
		{"publish request lost", far, memory.Fault{Op: memory.Publish, Kind: memory.LoseRequest, Times: 3}},
		{"publish answer lost", far, memory.Fault{Op: memory.Publish, Kind: memory.LoseResponse, Times: 3}},
		{"publish cut", far, memory.Fault{Op: memory.Publish, Kind: memory.Cut, Times: 3}},
		{"publish refused for now", far, memory.Fault{Op: memory.Publish, Kind: memory.Error, Err: broker.ErrBusy, Times: 7}},
		{"publish slow", far, memory.Fault{Op: memory.Publish, Kind: memory.Delay, Delay: 12 * time.Second, Times: 2}},
		{"deliveries lost", source, memory.Fault{Op: memory.Receive, Kind: memory.LoseResponse, Times: 3}},
		{"receive refused for now", source, memory.Fault{Op: memory.Receive, Kind: memory.Error, Times: 4}},
		{"ack request lost", source, memory.Fault{Op: memory.Settle, Kind: memory.LoseRequest, Times: 3}},
		{"ack answer lost", source, memory.Fault{Op: memory.Settle, Kind: memory.LoseResponse, Times: 3}},
		{"source cut at the ack", source, memory.Fault{Op: memory.Settle, Kind: memory.Cut, Times: 3}},
		{"acks refused", source, memory.Fault{Op: memory.Settle, Kind: memory.Error, Err: broker.ErrUnavailable, Times: 12}},
	} {
		for _, together := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/together=%v", c.name, together), func(t *testing.T) {
				bubbletest.Run(t, func(t *testing.T) {
					e := entity
					e.Ordered = !together // the memory broker has one message of a key out then
					r := newRig(t, e)
					defer r.close()
					r.publish(200, "a", "b", "c", "")
					b := r.to
					if c.on == source {
						b = r.from
					}
					i := b.Inject(c.f)
					must(t, i.Err())
					stats, err := r.drain(bridge.Options{Batch: 10, Lanes: 3, Together: together, PublishTimeout: 3 * time.Second, SettleTimeout: 3 * time.Second, Idle: time.Minute})
					must(t, err)
					ds := r.arrived()
					if together && c.on == source { // whose order doesn't survive a redelivery
						for i := range ds {
							ds[i].Key = ""
						}
					}
					exact(t, ds, 200)
					if i.Hits() < c.f.Times {
						t.Errorf("%d hits of %d; %v", i.Hits(), c.f.Times, stats)
					}
					if left, err := r.from.Stats(entity.Subscription); err != nil || left != (memory.Stats{}) {
						t.Errorf("left at the source: %+v, %v", left, err)
					}
				})
			})
		}
	}
}

// TestRemembers: where the far side doesn't dedup, a message whose ack was lost is not
// sent again by this process.
func TestRemembers(t *testing.T) {
	for _, remember := range []int{0, -1} {
		bubbletest.Run(t, func(t *testing.T) {
			r := newRig(t, entity, memory.WithoutDedup())
			defer r.close()
			r.publish(50, "a", "")
			r.from.Inject(memory.Fault{Op: memory.Settle, Kind: memory.Cut, Times: 4})
			stats, err := r.drain(bridge.Options{Batch: 10, Remember: remember})
			must(t, err)
			if remember == 0 {
				exact(t, r.arrived(), 50)
			} else if n := len(r.arrived()); n <= 50 {
				t.Errorf("without a memory there are %d messages: the fault strikes nothing", n)
			}
			if (stats.Again > 0) != (remember == 0) {
				t.Errorf("%v", stats)
			}
		})
	}
}

// TestFailingKey: a key that fails holds back its own later messages and no others.
func TestFailingKey(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		e := entity
		e.Ordered = false // the source brings all of the key at once
		r := newRig(t, e)
		defer r.close()
		r.publish(60, "bad", "a", "b")
		began := time.Now()
		far := &sick{Publisher: r.pub, judge: func(m *broker.Message, _ int) error {
			if m.ID == "006" && time.Since(began) < time.Minute {
				return broker.Errorf(broker.ErrUnavailable, nil, "publish %q", m.ID)
			}
			return nil
		}}
		b := bridge.New(r.rcv, far, bridge.Options{Batch: 10, Idle: 30 * time.Second, ErrorHook: r.hook, Backoff: broker.Backoff{Min: time.Second, Max: 2 * time.Second}})
		must(t, b.Run(t.Context()))
		exact(t, r.arrived(), 60)
		order := far.sent()
		at := slices.Index(order, "006")
		others := 0
		for _, id := range order[:at] {
			if n, _ := strconv.Atoi(id); n%3 != 0 {
				others++
			}
		}
		if others != 40 {
			t.Errorf("%d messages of other keys went while one failed, of 40: %v", others, order)
		}
	})
}

// TestRefused: what the far side never takes is dead-lettered with the reason, or stops
// the bridge and stays with the source.
func TestRefused(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, entity)
		defer r.close()
		r.publish(9, "a", "b", "c")
		far := &sick{Publisher: r.pub, judge: func(m *broker.Message, _ int) error {
			if m.ID == "003" {
				return broker.Errorf(broker.ErrTooLarge, nil, "publish %q: 300 KiB", m.ID)
			}
			return nil
		}}
		b := bridge.New(r.rcv, far, bridge.Options{Idle: time.Second, ErrorHook: r.hook})
		err := b.Run(t.Context())
		var stop *bridge.StopError
		if !errors.As(err, &stop) || stop.ID != "003" || stop.Key != "a" || stop.Late || !errors.Is(err, broker.ErrTooLarge) {
			t.Fatalf("%v", err)
		}
		must(t, r.rcv.Close(t.Context()))
		r.rcv, err = r.from.Conn().OpenReceiver(t.Context(), entity.Subscription)
		must(t, err)
		b = bridge.New(r.rcv, far, bridge.Options{Idle: 20 * time.Second, ErrorHook: r.hook, Refused: bridge.DeadLetter})
		must(t, b.Run(t.Context()))
		if s := b.Stats(); s.DeadLettered != 1 || r.reported(broker.ErrTooLarge) != 1 {
			t.Errorf("%v", s)
		}
		ds := r.arrived()
		if a := ids(ds, "a"); !slices.Equal(a, []string{"000", "006"}) || len(ds) != 8 {
			t.Errorf("%v of %d", a, len(ds))
		}
		conn := r.from.Conn()
		must(t, conn.Ensure(t.Context(), broker.Entity{Topic: "dead", Subscription: "dead/all"}))
		dead, err := conn.OpenReceiver(t.Context(), "dead/all")
		must(t, err)
		letters := take(t, dead)
		if len(letters) != 1 || letters[0].ID != "003" || !strings.Contains(letters[0].Headers.Get("onceline-dead-letter-reason"), "300 KiB") {
			t.Errorf("%+v", letters)
		}
	})
}

func TestLoop(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, entity)
		defer r.close()
		_, err := r.in.Publish(t.Context(), broker.Message{ID: "fresh", Headers: broker.Headers{{Key: "a", Value: "1"}}},
			broker.Message{ID: "from C", Headers: broker.Headers{{Key: bridge.PathHeader, Value: "C+%2C"}, {Key: "a", Value: "1"}}},
			broker.Message{ID: "been there", Headers: broker.Headers{{Key: bridge.PathHeader, Value: "C,B"}}},
			broker.Message{ID: "been here", Headers: broker.Headers{{Key: bridge.PathHeader, Value: "A"}}},
			broker.Message{ID: "lost its way", Headers: broker.Headers{{Key: bridge.PathHeader, Value: "1,2,3,4"}}})
		must(t, err)
		stats, err := r.drain(bridge.Options{From: "A", To: "B", Hops: 4, Refused: bridge.DeadLetter})
		must(t, err)
		got := map[string][]string{}
		for _, d := range r.arrived() {
			got[d.ID] = bridge.Route(d.Headers)
			if d.Headers.Get("a") != "1" || len(d.Headers) != 2 {
				t.Errorf("%v", d.Headers)
			}
		}
		if want := map[string][]string{"fresh": {"A"}, "from C": {"C ,", "A"}}; !reflect.DeepEqual(got, want) || stats.Looped != 2 || stats.DeadLettered != 1 {
			t.Errorf("%v, %v", got, stats)
		}
	})
}

// TestFarSideAway: nothing is lost, few are without an answer, and a bridge that was
// told to have no patience says what it waits for.
func TestFarSideAway(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, entity)
		defer r.close()
		r.publish(300, "a", "b", "")
		away := r.to.Inject(memory.Fault{Op: memory.Publish, Kind: memory.Error})
		stats, err := r.drain(bridge.Options{Patience: 5 * time.Minute})
		if !errors.Is(err, bridge.ErrStuck) || !errors.Is(err, broker.ErrUnavailable) || stats.Moved() != 0 {
			t.Errorf("%v: %v", err, stats)
		}
		if stats.Publishes > 100 {
			t.Errorf("%d publishes in five minutes", stats.Publishes)
		}
		away.Remove()
		must(t, r.rcv.Close(t.Context()))
		r.rcv, err = r.from.Conn().OpenReceiver(t.Context(), entity.Subscription)
		must(t, err)
		_, err = r.drain(bridge.Options{})
		must(t, err)
		exact(t, r.arrived(), 300)
	})
}

// TestStops: an end in the middle leaves nothing in between.
func TestStops(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, entity)
		defer r.close()
		r.publish(400, "a", "b", "")
		r.to.Inject(memory.Fault{Op: memory.Publish, Kind: memory.Delay, Delay: 100 * time.Millisecond})
		total := uint64(0)
		for range 30 {
			ctx, cancel := context.WithTimeout(t.Context(), 450*time.Millisecond)
			b := bridge.New(r.rcv, r.pub, bridge.Options{Batch: 10, Lanes: 2, ErrorHook: r.hook})
			must(t, b.Run(ctx))
			cancel()
			total += b.Stats().Stored
			if s := b.Stats(); s.Moved() != s.Settled || s.Duplicate > 0 {
				t.Errorf("%v, %d settled", s, s.Settled)
			}
			must(t, r.rcv.Close(t.Context()))
			var err error
			r.rcv, err = r.from.Conn().OpenReceiver(t.Context(), entity.Subscription)
			must(t, err)
		}
		exact(t, r.arrived(), int(total))
		if total != 400 {
			t.Errorf("%d moved", total)
		}
	})
}

func TestCount(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, entity)
		defer r.close()
		r.publish(100, "a", "b", "")
		stats, err := r.drain(bridge.Options{Count: 42, Batch: 5, Lanes: 3})
		must(t, err)
		if ds := r.arrived(); len(ds) != 42 || stats.Moved() != 42 || stats.Received != 42 {
			t.Errorf("%d: %v", len(ds), stats)
		}
	})
}

// nameless is a receiver whose messages have no IDs.
type nameless struct{ broker.Receiver }

func (n nameless) Receive(ctx context.Context, max int) ([]broker.Delivery, error) {
	ds, err := n.Receiver.Receive(ctx, max)
	for i := range ds {
		ds[i].ID = ""
	}
	return ds, err
}

func TestWithoutID(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, entity)
		defer r.close()
		r.rcv = nameless{r.rcv}
		r.publish(2, "", "a")
		_, err := r.drain(bridge.Options{})
		var stop *bridge.StopError
		if !errors.As(err, &stop) || !errors.Is(err, broker.ErrInvalid) || !strings.Contains(err.Error(), "without a dedup ID") {
			t.Fatal(err)
		}
		must(t, r.rcv.Close(t.Context()))
		rcv, err := r.from.Conn().OpenReceiver(t.Context(), entity.Subscription)
		must(t, err)
		r.rcv = nameless{rcv}
		_, err = r.drain(bridge.Options{ID: bridge.FromPosition("orders")})
		must(t, err)
		ds := r.arrived()
		if len(ds) != 2 || !strings.HasPrefix(ds[0].ID, "orders/") || ds[0].ID == ds[1].ID {
			t.Errorf("%+v", ds)
		}
	})
}

// TestHopeless: an error that waiting doesn't cure ends it.
func TestHopeless(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t, entity)
		defer r.close()
		must(t, r.rcv.Close(t.Context()))
		if _, err := r.drain(bridge.Options{}); !errors.Is(err, broker.ErrClosed) {
			t.Error(err)
		}
	})
}
