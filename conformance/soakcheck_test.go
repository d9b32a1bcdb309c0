package conformance_test

import (
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// tale makes up a history, an event at each full second.
type tale struct{ h conformance.SoakHistory }

func (t *tale) add(e conformance.SoakEvent) *tale {
	e.At = time.Duration(len(t.h.Events)) * time.Second
	if e.Asked == 0 {
		e.Asked = e.At
	}
	t.h.Events = append(t.h.Events, e)
	return t
}

func (t *tale) publish(id string, v broker.Verdict) *tale {
	return t.add(conformance.SoakEvent{Kind: conformance.SoakPublish, ID: id}).
		add(conformance.SoakEvent{Kind: conformance.SoakReceipt, ID: id, Verdict: v})
}

func (t *tale) deliver(id string, offset uint64) *tale {
	return t.add(conformance.SoakEvent{Kind: conformance.SoakDelivery, ID: id, Position: broker.Position{Offset: offset}})
}

// waited is a delivery by a Receive that was called so many seconds before.
func (t *tale) waited(id string, offset uint64, seconds int) *tale {
	at := time.Duration(len(t.h.Events)-seconds) * time.Second
	return t.add(conformance.SoakEvent{Kind: conformance.SoakDelivery, ID: id, Position: broker.Position{Offset: offset}, Asked: at})
}

func (t *tale) settle(id string, offset uint64, s broker.State) *tale {
	return t.add(conformance.SoakEvent{Kind: conformance.SoakOutcome, ID: id, Position: broker.Position{Offset: offset}, State: s})
}

func (t *tale) undrained() *tale { t.h.Drained = false; return t }

func (t *tale) trouble(s string) *tale { t.h.Trouble = append(t.h.Trouble, s); return t }

// elected is a tale in which another leader is elected next.
func elected(t *tale) *tale {
	t.h.Elected = time.Duration(len(t.h.Events)) * time.Second
	return t
}

func told() *tale { return &tale{conformance.SoakHistory{Drained: true, Took: time.Minute}} }

// whole is a history in which everything is as it should be.
func whole() *tale {
	return told().publish("a", broker.Stored).deliver("a", 1).settle("a", 1, broker.Confirmed)
}

func declares(answers map[boundary.Claim]boundary.Answer) boundary.Boundary {
	b := boundary.Boundary{Entries: map[boundary.Claim]boundary.Entry{
		boundary.PublishAckDurable:       {Declared: boundary.Kept},
		boundary.SettleFinal:             {Declared: boundary.Final},
		boundary.PublishDedupNewProducer: {Declared: boundary.Once},
	}}
	for c, a := range answers {
		b.Entries[c] = boundary.Entry{Declared: a}
	}
	return b
}

func TestCheckSoak(t *testing.T) {
	type answers = map[boundary.Claim]boundary.Answer
	for _, c := range []struct {
		name    string
		tale    *tale
		answers answers
		verdict report.Verdict
		reason  string // part of it
		numbers report.Soak
	}{
		{"all well", whole(), nil, report.Equal, "all 1 with a good receipt came; none came again",
			report.Soak{Published: 1, Stored: 1, Received: 1, Confirmed: 1}},
		{"lost", whole().publish("b", broker.Stored), nil, report.Weaker, "1 with a good receipt never came: b (Stored at 5.000 s, attempt 1)",
			report.Soak{Published: 2, Stored: 2, Received: 1, Confirmed: 1, Lost: 1}},
		{"lost after a Duplicate", whole().publish("b", broker.Unknown).publish("b", broker.Duplicate), nil, report.Weaker, "never came: b (Duplicate",
			report.Soak{Published: 2, Stored: 1, Duplicates: 1, Unknown: 1, Retried: 1, Received: 1, Confirmed: 1, Lost: 1}},
		{"lost after Accepted", whole().publish("b", broker.Accepted), nil, report.Weaker, "never came: b",
			report.Soak{Published: 2, Stored: 2, Received: 1, Confirmed: 1, Lost: 1}},
		{"lost, which is declared", whole().publish("b", broker.Stored), answers{boundary.PublishAckDurable: boundary.Lost}, report.Equal, "",
			report.Soak{Published: 2, Stored: 2, Received: 1, Confirmed: 1, Lost: 1}},
		{"came with an election", elected(whole().publish("b", broker.Stored)).deliver("b", 2).settle("b", 2, broker.Confirmed), nil, report.Equal, "1 came only with the next election of a leader",
			report.Soak{Published: 2, Stored: 2, Received: 2, Confirmed: 2, Stranded: 1}},
		{"lost, whatever is elected", elected(whole().publish("b", broker.Stored)), nil, report.Weaker, "never came: b",
			report.Soak{Published: 2, Stored: 2, Received: 1, Confirmed: 1, Lost: 1}},
		{"missing where the queue was not drained", whole().publish("b", broker.Stored).undrained(), nil, report.NotVerifiable, "1 with a good receipt had not come",
			report.Soak{Published: 2, Stored: 2, Received: 1, Confirmed: 1, Lost: 1}},
		{"not drained, and nothing missing", whole().undrained(), nil, report.NotVerifiable, "nothing is left",
			report.Soak{Published: 1, Stored: 1, Received: 1, Confirmed: 1}},
		{"unknown and never stored", whole().publish("b", broker.Unknown), nil, report.NotVerifiable, "1 never got a good receipt: b",
			report.Soak{Published: 2, Stored: 1, Unknown: 1, Unresolved: 1, Received: 1, Confirmed: 1}},
		{"unknown, retried and stored", whole().publish("b", broker.Unknown).publish("b", broker.Stored).deliver("b", 2).settle("b", 2, broker.Confirmed), nil, report.Equal, "",
			report.Soak{Published: 2, Stored: 2, Unknown: 1, Retried: 1, Received: 2, Confirmed: 2}},
		{"refused, retried and stored", whole().publish("b", broker.Refused).publish("b", broker.Stored).deliver("b", 2).settle("b", 2, broker.Confirmed), nil, report.Equal, "",
			report.Soak{Published: 2, Stored: 2, Refused: 1, Retried: 1, Received: 2, Confirmed: 2}},
		{"refused, and yet it came", whole().publish("b", broker.Refused).deliver("b", 2).settle("b", 2, broker.Confirmed), nil, report.Weaker, "1 came though all their receipts say Refused: b",
			report.Soak{Published: 2, Stored: 1, Refused: 1, Unresolved: 1, Received: 2, Confirmed: 2}},
		{"came again after Confirmed", whole().deliver("a", 1), nil, report.Weaker, "1 came again after the broker had confirmed their acks: a",
			report.Soak{Published: 1, Stored: 1, Received: 1, Confirmed: 1, Redelivered: 1, RedeliveredAfterConfirmed: 1}},
		{"came again after Confirmed, which is declared", whole().deliver("a", 1), answers{boundary.SettleFinal: boundary.Redelivered}, report.Equal, "",
			report.Soak{Published: 1, Stored: 1, Received: 1, Confirmed: 1, Redelivered: 1, RedeliveredAfterConfirmed: 1}},
		{"came again long after Confirmed to one that had waited", whole().publish("b", broker.Stored).waited("a", 1, 4).deliver("b", 2), nil, report.Weaker, "came again",
			report.Soak{Published: 2, Stored: 2, Received: 2, Confirmed: 1, Redelivered: 1, RedeliveredAfterConfirmed: 1}},
		{"came again just after Confirmed to one that had waited", whole().waited("a", 1, 2), nil, report.Equal, "",
			report.Soak{Published: 1, Stored: 1, Received: 1, Confirmed: 1, Redelivered: 1}},
		{"came again before Confirmed", told().publish("a", broker.Stored).deliver("a", 1).deliver("a", 1).settle("a", 1, broker.Confirmed), nil, report.Equal, "1 delivery came again, none of a confirmed ack",
			report.Soak{Published: 1, Stored: 1, Received: 1, Confirmed: 1, Redelivered: 1}},
		{"came again after Sent", told().publish("a", broker.Stored).deliver("a", 0).settle("a", 0, broker.Sent).deliver("a", 0), nil, report.Equal, "the protocol confirms no ack",
			report.Soak{Published: 1, Stored: 1, Received: 1, Sent: 1, Redelivered: 1}},
		{"came again after Unknown, Pending and LeaseLost", told().publish("a", broker.Stored).deliver("a", 1).settle("a", 1, broker.Unknown).deliver("a", 1).
			settle("a", 1, broker.Pending).deliver("a", 1).settle("a", 1, broker.LeaseLost).deliver("a", 1).settle("a", 1, broker.Confirmed), nil, report.Equal, "",
			report.Soak{Published: 1, Stored: 1, Received: 1, Confirmed: 1, Redelivered: 3}},
		{"two copies where the broker dedups", whole().deliver("a", 2), nil, report.Weaker, "1 copy beyond the first",
			report.Soak{Published: 1, Stored: 1, Received: 1, Confirmed: 1, Copies: 1}},
		{"two copies where it doesn't", whole().deliver("a", 2), answers{boundary.PublishDedupNewProducer: boundary.Twice}, report.Equal, "1 copy, which the boundary declares",
			report.Soak{Published: 1, Stored: 1, Received: 1, Confirmed: 1, Copies: 1}},
		{"a stranger", whole().deliver("x", 9), nil, report.Weaker, "1 came that nobody published: x",
			report.Soak{Published: 1, Stored: 1, Received: 1, Confirmed: 1}},
		{"the last message is none of them", whole().publish("witness-1", broker.Stored).deliver("witness-1", 7), nil, report.Equal, "",
			report.Soak{Published: 1, Stored: 1, Received: 1, Confirmed: 1}},
		{"trouble", whole().trouble("the node did not start"), nil, report.NotVerifiable, "the node did not start",
			report.Soak{Published: 1, Stored: 1, Received: 1, Confirmed: 1}},
		{"trouble beside a loss", whole().publish("b", broker.Stored).trouble("the node did not start"), nil, report.Weaker, "never came: b (Stored at 5.000 s, attempt 1); the node did not start",
			report.Soak{Published: 2, Stored: 2, Received: 1, Confirmed: 1, Lost: 1}},
		{"nothing at all", told(), nil, report.NotVerifiable, "nothing was published", report.Soak{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := conformance.CheckSoak(c.tale.h, declares(c.answers))
			if got.Verdict != c.verdict || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("%s: %q; want %s with %q", got.Verdict, got.Reason, c.verdict, c.reason)
			}
			want := c.numbers
			want.Verdict, want.Reason, want.Seconds = got.Verdict, got.Reason, 60
			want.GapSeconds, want.Rate = got.GapSeconds, got.Rate
			if w, g := summary(want), summary(got); w != g {
				t.Errorf("\n got %s\nwant %s", g, w)
			}
		})
	}
}

func summary(s report.Soak) string {
	r := report.Report{Soaks: []report.Soak{s}}
	var b strings.Builder
	if err := report.WriteJSON(&b, &r); err != nil {
		return err.Error()
	}
	return b.String()
}

func TestCheckSoakTakesTime(t *testing.T) {
	// Published at 0, 2, 4 and 6 s; good receipts at 1 and 7 s.
	h := told().publish("a", broker.Stored).publish("b", broker.Unknown).publish("b", broker.Refused).publish("b", broker.Duplicate)
	got := conformance.CheckSoak(h.h, declares(nil))
	if got.GapSeconds != 6 {
		t.Errorf("longest gap %v s, want 6", got.GapSeconds)
	}
	h = told().publish("a", broker.Stored).publish("b", broker.Unknown)
	if got := conformance.CheckSoak(h.h, declares(nil)); got.GapSeconds != 59 {
		t.Errorf("longest gap %v s, want all from the only good receipt to the end", got.GapSeconds)
	}
	if want := 2.0 / 7; got.Rate != want {
		t.Errorf("rate %v, want %v", got.Rate, want)
	}
}
