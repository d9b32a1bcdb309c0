package conformance

import (
	"fmt"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
)

// SoakKind says what a [SoakEvent] is.
type SoakKind uint8

// The kinds of event of a soak.
const (
	SoakPublish  SoakKind = iota + 1 // an attempt begins
	SoakReceipt                      // of the attempt before
	SoakDelivery                     // Receive has returned the message
	SoakOutcome                      // of an ack
)

// SoakEvent is one thing that happened to one message.
type SoakEvent struct {
	At       time.Duration // since the soak began
	Kind     SoakKind
	ID       string
	Verdict  broker.Verdict  // of a receipt
	State    broker.State    // of an outcome
	Position broker.Position // of a delivery and its outcomes; zero where the broker has none
	// Asked is when the Receive that returned a delivery was called.
	Asked time.Duration
}

// SoakHistory is all that happened in a soak, and what is needed to judge it.
type SoakHistory struct {
	Events []SoakEvent // in order of At
	// Drained says that a new receiver got a message which was published after all
	// others, so that what had not come by then never will.
	Drained bool
	// Elected is when another leader was elected for the sake of what had not come;
	// zero if none was.
	Elected time.Duration
	// Trouble is what the soak could not do, as sentences. Any makes undecided what
	// would have passed.
	Trouble []string
	// Notes are what else happened.
	Notes []string
	// Took is the length of the soak.
	Took time.Duration
}

// soakLog collects a history. It is safe for concurrent use.
type soakLog struct {
	begin time.Time

	mu      sync.Mutex
	history SoakHistory
	errors  []soakError
}

// soakError is a failure that calls have met.
type soakError struct {
	text        string
	first, last time.Duration
	times       int
}

// soakErrors bounds how many different failures are kept.
const soakErrors = 12

// soakSentences bounds the notes and the troubles of a soak.
const soakSentences = 40

func newSoakLog(messages int) *soakLog {
	return &soakLog{begin: time.Now(), history: SoakHistory{Events: make([]SoakEvent, 0, 5*messages)}}
}

func (l *soakLog) now() time.Duration { return time.Since(l.begin) }

// add takes n events, which fill writes; their time is that of the call.
func (l *soakLog) add(n int, fill func(i int, e *SoakEvent)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.now() // within the lock, so that the events are in order
	for i := range n {
		e := SoakEvent{At: at}
		fill(i, &e)
		l.history.Events = append(l.history.Events, e)
	}
}

func (l *soakLog) drained() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history.Drained = true
}

// electing notes the time of the election. Until the queue has been drained once more
// nothing is known of what is missing.
func (l *soakLog) electing() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history.Elected, l.history.Drained = l.now(), false
}

func (l *soakLog) note(sentence string) { l.keep(&l.history.Notes, sentence) }

func (l *soakLog) trouble(sentence string) { l.keep(&l.history.Trouble, sentence) }

func (l *soakLog) keep(where *[]string, sentence string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(*where) < soakSentences {
		*where = append(*where, sentence)
	}
}

// failed notes that a call has failed.
func (l *soakLog) failed(call string, err error) {
	text := call + ": " + err.Error()
	if len(text) > 240 {
		text = text[:240] + "…"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for i := range l.errors {
		if l.errors[i].text == text {
			l.errors[i].times++
			l.errors[i].last = now
			return
		}
	}
	if len(l.errors) < soakErrors {
		l.errors = append(l.errors, soakError{text, now, now, 1})
	}
}

// end returns the history.
func (l *soakLog) end() SoakHistory {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history.Took = l.now()
	for _, e := range l.errors {
		l.history.Notes = append(l.history.Notes, fmt.Sprintf("%d × between %.1f and %.1f s: %s", e.times, e.first.Seconds(), e.last.Seconds(), e.text))
	}
	return l.history
}
