package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// ErrFormat is what Read returns for what is no history.
var ErrFormat = errors.New("history: not a history")

// MaxBytes bounds what [Read] reads.
const MaxBytes = 1 << 30

// Read reads a history from JSON: an object as of [History], or its events alone, one
// on a line, which then count as drained only if drained says so. Fields that it
// doesn't know are refused, as are verdicts, actions and states, for a check of what
// was misread finds nothing. An error that is [ErrFormat] says where.
func Read(r io.Reader, drained bool) (History, error) {
	limited := &io.LimitedReader{R: r, N: MaxBytes + 1}
	all, err := io.ReadAll(limited)
	switch {
	case err != nil:
		return History{}, fmt.Errorf("history: %w", err)
	case limited.N == 0:
		return History{}, fmt.Errorf("%w: over %d bytes", ErrFormat, MaxBytes)
	}
	h := History{Schema: Schema, Drained: drained}
	var probe struct {
		Events  *json.RawMessage `json:"events"`
		Targets *json.RawMessage `json:"targets"`
	}
	if json.Unmarshal(all, &probe) == nil && probe.Targets != nil {
		return History{}, fmt.Errorf("%w: it is a report of verify; name the finding whose history is meant, with --finding TARGET/CLAIM", ErrFormat)
	}
	if json.Unmarshal(all, &probe) == nil && probe.Events != nil {
		err = strict(all, &h)
		h.Drained = h.Drained || drained
	} else {
		h.Events, err = lines(all)
	}
	if err == nil {
		err = h.Valid()
	}
	if err != nil {
		return History{}, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return h, nil
}

func strict(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON value")
	}
	return nil
}

func lines(b []byte) ([]Event, error) {
	var events []Event
	n := 0
	for line := range bytes.Lines(b) {
		n++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var e Event
		if err := strict(line, &e); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		events = append(events, e)
	}
	if len(events) == 0 {
		return nil, errors.New("there are no events")
	}
	return events, nil
}

var (
	verdicts = []string{"Stored", "Duplicate", "Accepted", "Refused", "Unknown"}
	actions  = []string{"Ack", "Nack", "Extend", "DeadLetter"}
	states   = []string{"Confirmed", "Sent", "Pending", "LeaseLost", "Unknown"}
)

// Valid says what keeps the history from being checked.
func (h *History) Valid() error {
	if h.Schema != Schema {
		return fmt.Errorf("schema %d; this program knows %d", h.Schema, Schema)
	}
	last := 0.0
	for i := range h.Events {
		e := &h.Events[i]
		bad := func(format string, args ...any) error {
			return fmt.Errorf("event %d (%s of %q): %s", i+1, e.Kind, e.ID, fmt.Sprintf(format, args...))
		}
		oneOf := func(name, got string, of []string) error {
			if !slices.Contains(of, got) {
				return bad("%s is %q, not one of %q", name, got, of)
			}
			return nil
		}
		if e.At < last {
			return bad("it is at %g s, after one at %g s", e.At, last)
		}
		last = e.At
		var err error
		switch e.Kind {
		case "":
			return bad("it has no kind")
		case Receipt:
			err = oneOf("verdict", e.Verdict, verdicts)
		case Settle:
			err = oneOf("action", e.Action, actions)
		case Outcome:
			if err = oneOf("action", e.Action, actions); err == nil {
				err = oneOf("state", e.State, states)
			}
		case Publish, Delivery, Effect:
		default:
			continue
		}
		if err != nil {
			return err
		}
		if e.ID == "" {
			return bad("it has no ID")
		}
	}
	return nil
}
