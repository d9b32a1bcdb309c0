package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// soakCopy is one stored copy of a message, as far as positions tell them apart.
type soakCopy struct {
	id       string
	position broker.Position
}

// soakMessage is what a history says of one message.
type soakMessage struct {
	id        string
	attempts  int
	good      broker.Verdict // of its first good receipt; Unknown while there is none
	goodAt    time.Duration
	refused   int
	received  bool
	copies    int
	confirmed bool
	sent      bool
}

// soakOverlap is how long after the answer to a settle a delivery may arrive in a
// Receive that had been called before it, and may still have been handed out
// before the settle took effect.
const soakOverlap = time.Second

// CheckSoak judges a history by what the boundary declares. It fills the numbers,
// the verdict, its reason and the notes of a report.Soak, and depends on nothing
// but its arguments.
//
// Weaker is:
//
//   - lost: a message with a good receipt never came (publish.ack.durable);
//   - a copy came again though the broker had confirmed its ack (settle.final);
//   - the broker has more than one copy of a message, where the boundary says that
//     it dedups over producers (publish.dedup.new-producer);
//   - a message came though all of its receipts said Refused, or though nobody
//     published it.
//
// What could not be told is NotVerifiable: messages that never got a good receipt,
// a queue that could not be drained, and anything in Trouble.
func CheckSoak(h SoakHistory, b boundary.Boundary) report.Soak {
	t := soakTally{messages: map[string]*soakMessage{}, delivered: map[soakCopy]bool{}, confirmed: map[soakCopy]time.Duration{}}
	t.elected = h.Elected
	t.soak.Seconds, t.soak.Notes = h.Took.Seconds(), slices.Clone(h.Notes)
	for _, e := range h.Events {
		if !strings.HasPrefix(e.ID, soakWitness) {
			t.take(e)
		}
	}
	t.sum()
	broken, open := t.broken(h, b), t.open(h)
	s := &t.soak
	switch {
	case len(broken) > 0:
		s.Verdict, s.Reason = report.Weaker, strings.Join(append(broken, open...), "; ")
	case len(open) > 0:
		s.Verdict, s.Reason = report.NotVerifiable, strings.Join(open, "; ")
	default:
		s.Verdict, s.Reason = report.Equal, kept(s)
	}
	return *s
}

// soakTally is what is known of a history up to one of its events.
type soakTally struct {
	soak      report.Soak
	messages  map[string]*soakMessage
	order     []*soakMessage // as they were published
	elected   time.Duration  // zero: not
	delivered map[soakCopy]bool
	confirmed map[soakCopy]time.Duration // when the broker's answer came

	first, last time.Duration // the first publish, and the last good receipt
	again       []string      // came after that answer
	lost        []string
	refused     []string // came, and all receipts say Refused
	strangers   []string // came, and nobody published them
	unresolved  []string
}

func (t *soakTally) take(e SoakEvent) {
	m := t.messages[e.ID]
	switch {
	case m != nil:
	case e.Kind != SoakPublish:
		if !slices.Contains(t.strangers, e.ID) {
			t.strangers = append(t.strangers, e.ID)
		}
		return
	default:
		m = &soakMessage{id: e.ID}
		t.messages[e.ID] = m
		if t.order = append(t.order, m); len(t.order) == 1 {
			t.first, t.last = e.At, e.At
		}
	}
	switch e.Kind {
	case SoakPublish:
		if m.attempts++; m.attempts == 2 {
			t.soak.Retried++
		}
	case SoakReceipt:
		t.receipt(m, e)
	case SoakDelivery:
		t.delivery(m, e)
	case SoakOutcome:
		c := soakCopy{e.ID, e.Position}
		switch _, had := t.confirmed[c]; {
		case e.State == broker.Sent:
			m.sent = true
		case e.State == broker.Confirmed && !had:
			m.confirmed = true
			t.confirmed[c] = e.At
		}
	}
}

func (t *soakTally) receipt(m *soakMessage, e SoakEvent) {
	switch {
	case e.Verdict.OK():
		if !m.good.OK() {
			m.good, m.goodAt = e.Verdict, e.At
		}
		t.soak.GapSeconds = max(t.soak.GapSeconds, (e.At - t.last).Seconds())
		t.last = e.At
	case e.Verdict == broker.Refused:
		m.refused++
		t.soak.Refused++
	default:
		t.soak.Unknown++
	}
}

func (t *soakTally) delivery(m *soakMessage, e SoakEvent) {
	if !m.received && t.elected > 0 && e.At >= t.elected {
		t.soak.Stranded++
	}
	m.received = true
	c := soakCopy{e.ID, e.Position}
	if !t.delivered[c] {
		t.delivered[c] = true
		m.copies++
		return
	}
	t.soak.Redelivered++
	if at, ok := t.confirmed[c]; ok && (e.Asked >= at || e.At-at > soakOverlap) {
		t.soak.RedeliveredAfterConfirmed++
		t.again = append(t.again, e.ID)
	}
}

// sum counts the messages, after the last event.
func (t *soakTally) sum() {
	s := &t.soak
	s.Published = len(t.order)
	for _, m := range t.order {
		switch {
		case m.good == broker.Duplicate:
			s.Duplicates++
		case m.good.OK():
			s.Stored++
		default:
			t.unresolved = append(t.unresolved, m.id)
		}
		switch {
		case m.received:
			s.Received++
			s.Copies += m.copies - 1
			if m.refused == m.attempts {
				t.refused = append(t.refused, m.id)
			}
		case m.good.OK():
			t.lost = append(t.lost, fmt.Sprintf("%s (%s at %.3f s, attempt %d)", m.id, m.good, m.goodAt.Seconds(), m.attempts))
		}
		switch {
		case m.confirmed:
			s.Confirmed++
		case m.sent:
			s.Sent++
		}
	}
	s.Lost, s.Unresolved = len(t.lost), len(t.unresolved)
	if s.Unresolved > 0 { // they waited to the end
		s.GapSeconds = max(s.GapSeconds, s.Seconds-t.last.Seconds())
	}
	if t.last > t.first {
		s.Rate = float64(s.Stored+s.Duplicates) / (t.last - t.first).Seconds()
	}
}

// broken is what contradicts the boundary.
func (t *soakTally) broken(h SoakHistory, b boundary.Boundary) []string {
	var found []string
	add := func(ids []string, format string) {
		if len(ids) > 0 {
			found = append(found, fmt.Sprintf(format, len(ids))+": "+some(ids))
		}
	}
	if h.Drained && b.Entries[boundary.PublishAckDurable].Declared != boundary.Lost {
		add(t.lost, "%d with a good receipt never came")
	}
	if b.Entries[boundary.SettleFinal].Declared != boundary.Redelivered {
		add(t.again, "%d came again after the broker had confirmed their acks")
	}
	if t.soak.Copies > 0 && b.Entries[boundary.PublishDedupNewProducer].Declared == boundary.Once {
		found = append(found, fmt.Sprintf("the broker keeps %s beyond the first, and is declared to dedup", amount(t.soak.Copies, "copy", "copies")))
	}
	add(t.refused, "%d came though all their receipts say Refused")
	add(t.strangers, "%d came that nobody published")
	return found
}

// open is what could not be told.
func (t *soakTally) open(h SoakHistory) []string {
	var found []string
	switch {
	case h.Drained:
	case len(t.lost) > 0:
		found = append(found, fmt.Sprintf("%d with a good receipt had not come when the soak gave up: %s", len(t.lost), some(t.lost)))
	default:
		found = append(found, "it was not seen that nothing is left in the queue")
	}
	if len(t.unresolved) > 0 {
		found = append(found, fmt.Sprintf("%d never got a good receipt: %s", len(t.unresolved), some(t.unresolved)))
	}
	if len(t.order) == 0 {
		found = append(found, "nothing was published")
	}
	return append(found, h.Trouble...)
}

// kept says what a soak that passed has shown.
func kept(s *report.Soak) string {
	text := fmt.Sprintf("all %d with a good receipt came", s.Stored+s.Duplicates)
	switch {
	case s.Confirmed > 0 && s.Redelivered > 0:
		text += fmt.Sprintf("; %s came again, none of a confirmed ack", amount(s.Redelivered, "delivery", "deliveries"))
	case s.Confirmed > 0:
		text += "; none came again"
	default:
		text += fmt.Sprintf("; the protocol confirms no ack, and %s came again", amount(s.Redelivered, "delivery", "deliveries"))
	}
	if s.Stranded > 0 {
		text += fmt.Sprintf("; %d came only with the next election of a leader", s.Stranded)
	}
	if s.Copies > 0 {
		text += fmt.Sprintf("; retries left %s, which the boundary declares", amount(s.Copies, "copy", "copies"))
	}
	return text
}

// some names the first of the IDs.
func some(ids []string) string {
	const most = 5
	if len(ids) <= most {
		return strings.Join(ids, ", ")
	}
	return strings.Join(ids[:most], ", ") + ", …"
}
