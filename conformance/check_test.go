package conformance

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance/report"
)

// event is a line of a made-up history.
func event(kind, id, note string) report.Event {
	first, rest, _ := strings.Cut(note, " ")
	switch kind {
	case kindReceipt:
		return report.Event{Kind: kind, ID: id, Verdict: first}
	case kindOutcome:
		return report.Event{Kind: kind, ID: id, Action: first, State: rest}
	}
	return report.Event{Kind: kind, ID: id, Note: note}
}

func TestCheckQueue(t *testing.T) {
	fine := []report.Event{
		event(kindPublish, "a", ""), event(kindReceipt, "a", "Stored at 1"),
		event(kindDelivery, "a", ""), event(kindOutcome, "a", "Ack Confirmed"),
	}
	for name, c := range map[string]struct {
		events []report.Event
		want   Queue
	}{
		"nothing":  {nil, Queue{}},
		"all well": {fine, Queue{}},
		"lost": {append(slices.Clone(fine), event(kindPublish, "b", ""), event(kindReceipt, "b", "Stored at 2")),
			Queue{Lost: []string{"b"}}},
		"accepted and duplicate receipts promise too": {[]report.Event{
			event(kindPublish, "a", ""), event(kindReceipt, "a", "Accepted at 0"),
			event(kindPublish, "b", ""), event(kindReceipt, "b", "Duplicate at 0")},
			Queue{Lost: []string{"a", "b"}}},
		"a refused message may be absent": {append(slices.Clone(fine), event(kindPublish, "b", ""), event(kindReceipt, "b", "Refused (too large)")),
			Queue{}},
		"an unknown one too": {append(slices.Clone(fine), event(kindPublish, "b", ""), event(kindReceipt, "b", "Unknown (cut)")),
			Queue{}},
		"duplicated": {append(slices.Clone(fine), event(kindDelivery, "a", ""), event(kindDelivery, "a", "")),
			Queue{Duplicated: []string{"a"}}},
		"given back and come again is no duplicate": {[]report.Event{
			event(kindPublish, "a", ""), event(kindReceipt, "a", "Stored at 1"),
			event(kindDelivery, "a", ""), event(kindOutcome, "a", "Nack Confirmed"), event(kindDelivery, "a", "")},
			Queue{}},
		"unexpected": {append(slices.Clone(fine), event(kindDelivery, "x", "")),
			Queue{Unexpected: []string{"x"}}},
		"recovered": {append(slices.Clone(fine), event(kindPublish, "b", ""), event(kindReceipt, "b", "Unknown (cut)"), event(kindDelivery, "b", "")),
			Queue{Recovered: []string{"b"}}},
	} {
		got := CheckQueue(c.events)
		if !slices.Equal(got.Lost, c.want.Lost) || !slices.Equal(got.Duplicated, c.want.Duplicated) ||
			!slices.Equal(got.Unexpected, c.want.Unexpected) || !slices.Equal(got.Recovered, c.want.Recovered) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestCheckOrder(t *testing.T) {
	want := []string{"a", "b", "c"}
	deliveries := func(ids ...string) (es []report.Event) {
		for _, id := range ids {
			es = append(es, event(kindDelivery, id, ""))
		}
		return es
	}
	for _, c := range []struct {
		came      []string
		firstOnly bool
		late      []string
	}{
		{[]string{"a", "b", "c"}, false, nil},
		{[]string{"a", "x", "b", "y", "c"}, false, nil},
		{[]string{"a", "b", "b", "c"}, false, nil},           // given back, come again before the next
		{[]string{"a", "b", "c", "b"}, false, []string{"b"}}, // come again after the next
		{[]string{"a", "b", "c", "b"}, true, nil},
		{[]string{"b", "a", "c"}, true, []string{"a"}},
		{[]string{"c", "b", "a"}, false, []string{"b", "a"}},
	} {
		if late := CheckOrder(deliveries(c.came...), want, c.firstOnly); !slices.Equal(late, c.late) {
			t.Errorf("%v (first only %v): late %v, want %v", c.came, c.firstOnly, late, c.late)
		}
	}
}

func TestCheckEffects(t *testing.T) {
	n := CheckEffects([]report.Event{event(kindEffect, "a", ""), event(kindDelivery, "b", ""), event(kindEffect, "a", ""), event(kindEffect, "c", "")})
	if n["a"] != 2 || n["b"] != 0 || n["c"] != 1 {
		t.Error(n)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	h := newHistory()
	for range maxEvents + 5 {
		h.Add(report.Broker, "x", "", "%d%%", 5)
	}
	es := h.Events()
	if len(es) != maxEvents+1 || es[maxEvents].Kind != "cut" || es[0].Note != "5%" {
		t.Errorf("%d events, last %+v", len(es), es[len(es)-1])
	}
}

func TestWindowOf(t *testing.T) {
	at := func(id string, v broker.Verdict, before time.Duration) retry {
		return retry{id, v, before, before + time.Second}
	}
	accepted := []retry{at("1", broker.Accepted, time.Minute), at("2", broker.Accepted, 4*time.Minute), at("3", broker.Accepted, 6*time.Minute)}
	for _, c := range []struct {
		name           string
		retries        []retry
		copies         map[string]int
		known, newFrom time.Duration
		bad            bool
	}{
		{"a window", accepted, map[string]int{"1": 1, "2": 1, "3": 2}, 4 * time.Minute, 6*time.Minute + time.Second, false},
		{"none", accepted, map[string]int{"1": 2, "2": 2, "3": 2}, 0, time.Minute + time.Second, false},
		{"no end", accepted, map[string]int{"1": 1, "2": 1, "3": 1}, 6 * time.Minute, -1, false},
		{"lost", accepted, map[string]int{"1": 1, "2": 1}, 0, 0, true},
		{"a duplicate that is there", []retry{at("1", broker.Duplicate, 0)}, map[string]int{"1": 2}, 0, 0, true},
		{"a stored one that is not", []retry{at("1", broker.Stored, 0)}, map[string]int{"1": 1}, 0, 0, true},
		{"forgotten and known again", accepted, map[string]int{"1": 2, "2": 1, "3": 2}, 0, 0, true},
		{"both right", []retry{at("1", broker.Duplicate, time.Minute), at("2", broker.Stored, 2*time.Minute)}, map[string]int{"1": 1, "2": 2}, time.Minute, 2*time.Minute + time.Second, false},
	} {
		known, newFrom, err := windowOf(c.retries, c.copies)
		if (err != nil) != c.bad || !c.bad && (known != c.known || newFrom != c.newFrom) {
			t.Errorf("%s: known to %s, new from %s, %v", c.name, known, newFrom, err)
		}
	}
}
