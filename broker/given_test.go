package broker_test

import (
	"context"
	"testing"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/otel"
)

// takesGiven counts how it is given messages.
type takesGiven struct {
	broker.Publisher
	kept, given int
}

func (p *takesGiven) Publish(_ context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	p.kept += len(msgs)
	return storedAll(len(msgs)), nil
}

func (p *takesGiven) PublishGiven(_ context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	p.given += len(msgs)
	return storedAll(len(msgs)), nil
}

func (p *takesGiven) Limits() broker.Limits       { return broker.Limits{} }
func (p *takesGiven) Close(context.Context) error { return nil }

func storedAll(n int) []broker.Receipt {
	rs := make([]broker.Receipt, n)
	for i := range rs {
		rs[i].Verdict = broker.Stored
	}
	return rs
}

// A Batcher gives its messages away, and wrappers beneath it pass that on; who calls
// a wrapper's Publish keeps them.
func TestBatcherGivesAway(t *testing.T) {
	t.Parallel()
	telemetry, err := otel.New("fake")
	if err != nil {
		t.Fatal(err)
	}
	for name, wrap := range map[string]func(broker.Publisher) broker.Publisher{
		"alone": func(p broker.Publisher) broker.Publisher { return p },
		"retry": func(p broker.Publisher) broker.Publisher { return broker.Retry(p, broker.RetryPolicy{}) },
		"otel":  func(p broker.Publisher) broker.Publisher { return telemetry.Publisher(p, "t") },
		"both": func(p broker.Publisher) broker.Publisher {
			return broker.Retry(telemetry.Publisher(p, "t"), broker.RetryPolicy{})
		},
	} {
		p := &takesGiven{}
		wrapped := wrap(p)
		if _, err := wrapped.Publish(t.Context(), broker.Message{ID: "a"}); err != nil {
			t.Fatal(err)
		}
		if p.kept != 1 || p.given != 0 {
			t.Errorf("%s: Publish gave %d away", name, p.given)
		}
		b := broker.NewBatcher(wrapped, 1, 10)
		if _, err := b.Publish(t.Context(), broker.Message{ID: "b"}, broker.Message{ID: "c"}); err != nil {
			t.Fatal(err)
		}
		if p.kept != 1 || p.given != 2 {
			t.Errorf("%s: of two that a Batcher sent, %d were given", name, p.given)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
