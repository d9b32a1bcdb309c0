package stream

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/message"
	sdk "github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"
)

// sender is a producer of the vendor's client that waits for its confirms.
type sender struct {
	*sdk.Producer
	confirms sdk.ChannelPublishConfirm
}

func newSender(t *testing.T, env *sdk.Environment, stream, name string) *sender {
	t.Helper()
	p, err := env.NewProducer(stream, sdk.NewProducerOptions().SetProducerName(name))
	if err != nil {
		t.Fatal(err)
	}
	return &sender{p, p.NotifyPublishConfirmation()}
}

// send publishes bodies under IDs and waits for all confirms.
func (s *sender) send(t *testing.T, ids ...int64) {
	t.Helper()
	var batch []message.StreamMessage
	for _, id := range ids {
		m := amqp.NewMessage([]byte(fmt.Sprint(id)))
		m.SetPublishingId(id)
		batch = append(batch, m)
	}
	if err := s.BatchSend(batch); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(ids); {
		select {
		case cs := <-s.confirms:
			for _, c := range cs {
				if !c.IsConfirmed() {
					t.Fatalf("ID %d: %v", c.GetPublishingId(), c.GetError())
				}
				n++
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("%d of %d confirms came", n, len(ids))
		}
	}
}

// bodies reads n messages of a stream from an offset on.
func bodies(t *testing.T, env *sdk.Environment, stream string, from sdk.OffsetSpecification, n int) []string {
	t.Helper()
	got := make(chan string, 1000)
	c, err := env.NewConsumer(stream, func(_ sdk.ConsumerContext, m *amqp.Message) { got <- string(m.GetData()) },
		sdk.NewConsumerOptions().SetOffset(from))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var all []string
	for len(all) < n {
		select {
		case b := <-got:
			all = append(all, b)
		case <-time.After(5 * time.Second):
			t.Fatalf("got %v of %d", all, n)
		}
	}
	return all
}

func TestTheVendorsClientPublishesAndReads(t *testing.T) {
	_, addr := serve(t)
	env := environment(t, addr)
	if err := env.DeclareStream("s", sdk.NewStreamOptions().SetMaxAge(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := env.DeclareStream("s", sdk.NewStreamOptions().SetMaxAge(time.Hour)); err != nil {
		t.Errorf("declared again: %v", err) // the client takes "exists" for a success
	}
	if err := env.DeclareStream("s", nil); !errors.Is(err, sdk.PreconditionFailed) {
		t.Errorf("declared otherwise: %v", err)
	}
	p := newSender(t, env, "s", "me")
	p.send(t, 1, 2, 3)
	p.send(t, 4, 5)
	first := sdk.OffsetSpecification{}
	for _, c := range []struct {
		from sdk.OffsetSpecification
		want []string
	}{
		{first.First(), []string{"1", "2", "3", "4", "5"}},
		{first.Last(), []string{"4", "5"}},
		{first.Offset(2), []string{"3", "4", "5"}},
		{first.Timestamp(time.Now().Add(-time.Hour).UnixMilli()), []string{"1", "2", "3", "4", "5"}},
	} {
		if got := bodies(t, env, "s", c.from, len(c.want)); !slices.Equal(got, c.want) {
			t.Errorf("from %s: %v, want %v", c.from, got, c.want)
		}
	}
	if last, err := p.GetLastPublishingId(); err != nil || last != 5 {
		t.Errorf("last publishing ID %d, %v", last, err)
	}
	stats, err := env.StreamStats("s")
	if err != nil {
		t.Fatal(err)
	}
	if at, err := stats.CommittedChunkId(); err != nil || at != 3 {
		t.Errorf("last chunk at %d, %v", at, err)
	}
	if err := env.StoreOffset("c", "s", 3); err != nil {
		t.Fatal(err)
	}
	if at, err := env.QueryOffset("c", "s"); err != nil || at != 3 {
		t.Errorf("stored offset %d, %v", at, err)
	}
	if _, err := env.QueryOffset("another", "s"); !errors.Is(err, sdk.OffsetNotFoundError) {
		t.Errorf("an offset that was never stored: %v", err)
	}
	if err := env.DeleteStream("s"); err != nil {
		t.Fatal(err)
	}
	if exists, err := env.StreamExists("s"); err != nil || exists {
		t.Errorf("deleted and there: %v, %v", exists, err)
	}
}

// RMS-F-01 to RMS-F-05: the highest ID alone is remembered, also over a restart,
// and what was sent below it is confirmed and lost.
func TestTheHighestPublishingIDIsAllThatIsKnown(t *testing.T) {
	s, addr := serve(t)
	env := environment(t, addr)
	if err := env.DeclareStream("s", nil); err != nil {
		t.Fatal(err)
	}
	p := newSender(t, env, "s", "me")
	p.send(t, 1, 2)
	p.send(t, 2)
	p.send(t, 10)
	p.send(t, 5)
	s.Restart(true)
	p = newSender(t, environment(t, addr), "s", "me")
	p.send(t, 10, 7, 11)
	if got := bodies(t, environment(t, addr), "s", sdk.OffsetSpecification{}.First(), 4); !slices.Equal(got, []string{"1", "2", "10", "11"}) {
		t.Errorf("stored %v", got)
	}
	q := newSender(t, environment(t, addr), "s", "another")
	q.send(t, 1)
	if last, err := q.GetLastPublishingId(); err != nil || last != 1 {
		t.Errorf("the other's last ID %d, %v", last, err)
	}
}

// Two consumers of the vendor's client under one name: the second one gets what
// comes after the first has gone, from the offset that was stored.
func TestTheVendorsClientTakesTurns(t *testing.T) {
	_, addr := serve(t)
	env := environment(t, addr)
	if err := env.DeclareStream("s", nil); err != nil {
		t.Fatal(err)
	}
	newSender(t, env, "s", "me").send(t, 1, 2, 3)
	consume := func(env *sdk.Environment) (*sdk.Consumer, chan string) {
		t.Helper()
		got := make(chan string, 100)
		c, err := env.NewConsumer("s", func(_ sdk.ConsumerContext, m *amqp.Message) { got <- string(m.GetData()) },
			sdk.NewConsumerOptions().SetConsumerName("n").SetOffset(sdk.OffsetSpecification{}.First()).
				SetSingleActiveConsumer(sdk.NewSingleActiveConsumer(func(stream string, active bool) sdk.OffsetSpecification {
					at, err := env.QueryOffset("n", stream)
					if err != nil {
						return sdk.OffsetSpecification{}.First()
					}
					return sdk.OffsetSpecification{}.Offset(at + 1)
				})))
		if err != nil {
			t.Fatal(err)
		}
		return c, got
	}
	want := func(got chan string, bodies ...string) {
		t.Helper()
		for _, body := range bodies {
			select {
			case b := <-got:
				if b != body {
					t.Errorf("%q came, want %q", b, body)
				}
			case <-time.After(5 * time.Second):
				t.Fatalf("%q never came", body)
			}
		}
	}
	first, one := consume(env)
	want(one, "1", "2", "3")
	second, two := consume(environment(t, addr))
	defer second.Close()
	if err := first.StoreCustomOffset(1); err != nil {
		t.Fatal(err)
	}
	if at, err := first.QueryOffset(); err != nil || at != 1 {
		t.Fatal(at, err)
	}
	if len(two) > 0 {
		t.Errorf("%q came out of turn", <-two)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	want(two, "3")
}
