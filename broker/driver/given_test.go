package driver_test

import (
	"context"
	"slices"
	"testing"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// givenFake is an adapter whose publishers take messages that are given away.
type givenFake struct{ *fake }

func (f givenFake) OpenPublisher(ctx context.Context, topic string, o broker.PublisherOptions) (driver.Publisher, error) {
	p, err := f.fake.OpenPublisher(ctx, topic, o)
	return givenPublisher{p, f.fake}, err
}

type givenPublisher struct {
	driver.Publisher
	f *fake
}

func (p givenPublisher) PublishGiven(ctx context.Context, msgs []broker.Message, receipts []broker.Receipt) {
	p.f.note("given")
	p.Publish(ctx, msgs, receipts)
}

// What is given away is checked and stamped as anything is, and an adapter that
// can't make use of it gets it by Publish.
func TestPublishGiven(t *testing.T) {
	stored := func(_ context.Context, msgs []broker.Message, receipts []broker.Receipt) {
		for i := range msgs {
			if receipts[i].Verdict = broker.Stored; msgs[i].Time.IsZero() {
				t.Errorf("%q has no time", msgs[i].ID)
			}
		}
	}
	for _, takes := range []bool{true, false} {
		f := newFake()
		f.pub = stored
		var d driver.Conn = f
		if takes {
			d = givenFake{f}
		}
		p, err := driver.New(d).OpenPublisher(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		g, ok := p.(broker.GivenPublisher)
		if !ok {
			t.Fatal("messages can't be given away")
		}
		f.took()
		rs, _ := g.PublishGiven(t.Context(), broker.Message{ID: "a"}, broker.Message{}, broker.Message{ID: "b"})
		if rs[0].Verdict != broker.Stored || rs[1].Verdict != broker.Refused || rs[2].Verdict != broker.Stored {
			t.Errorf("%+v", rs)
		}
		if given := slices.Contains(f.took(), "given"); given != takes {
			t.Errorf("given %v, want %v", given, takes)
		}
		if _, err := p.Publish(t.Context(), broker.Message{ID: "c"}); err != nil {
			t.Error(err)
		}
		if slices.Contains(f.took(), "given") {
			t.Error("Publish gave a message away")
		}
	}
}
