package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/onceline/onceline/broker"
)

// line is a message as pub reads it and sub prints it, one JSON object on a line.
// What is not valid UTF-8 is in base64. The fields of a delivery are ignored when
// it is read, so that the output of sub is input for pub.
type line struct {
	ID         string       `json:"id"`
	Copy       string       `json:"copy,omitempty"`
	Key        string       `json:"key,omitempty"`
	Body       string       `json:"body,omitempty"`
	BodyBase64 []byte       `json:"body_base64,omitempty"`
	Headers    []lineHeader `json:"headers,omitempty"`
	Time       *time.Time   `json:"time,omitempty"`

	Attempt  int           `json:"attempt,omitempty"`
	Trust    string        `json:"attempt_trust,omitempty"`
	Lease    *time.Time    `json:"lease,omitempty"`
	Position *linePosition `json:"position,omitempty"`
}

type lineHeader struct {
	Key         string `json:"key"`
	Value       string `json:"value,omitempty"`
	ValueBase64 []byte `json:"value_base64,omitempty"`
}

type linePosition struct {
	Partition string `json:"partition,omitempty"`
	Offset    uint64 `json:"offset"`
	Token     string `json:"token,omitempty"`
}

// parseLine reads one message. An unknown field is an error: it may be a misspelt
// one.
func parseLine(b []byte) (broker.Message, error) {
	var l line
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return broker.Message{}, err
	}
	if dec.More() {
		return broker.Message{}, fmt.Errorf("more than one JSON value")
	}
	if l.Body != "" && l.BodyBase64 != nil {
		return broker.Message{}, fmt.Errorf("both body and body_base64")
	}
	m := broker.Message{ID: l.ID, Copy: l.Copy, Key: l.Key, Body: l.BodyBase64}
	if l.Body != "" {
		m.Body = []byte(l.Body)
	}
	if l.Time != nil {
		m.Time = *l.Time
	}
	for _, h := range l.Headers {
		if h.Value != "" && h.ValueBase64 != nil {
			return broker.Message{}, fmt.Errorf("header %q: both value and value_base64", h.Key)
		}
		m.Headers = append(m.Headers, broker.Header{Key: h.Key, Value: h.Value + string(h.ValueBase64)})
	}
	return m, nil
}

// lineOf is a delivery as JSON, ending in a newline.
func lineOf(d *broker.Delivery) ([]byte, error) {
	l := line{ID: d.ID, Copy: d.Copy, Key: d.Key, Attempt: d.Attempt.Number, Trust: d.Attempt.Trust.String(),
		Time: some(d.Time), Lease: some(d.Lease)}
	if utf8.Valid(d.Body) {
		l.Body = string(d.Body)
	} else {
		l.BodyBase64 = d.Body
	}
	for _, h := range d.Headers {
		if utf8.ValidString(h.Value) {
			l.Headers = append(l.Headers, lineHeader{Key: h.Key, Value: h.Value})
		} else {
			l.Headers = append(l.Headers, lineHeader{Key: h.Key, ValueBase64: []byte(h.Value)})
		}
	}
	if p := d.Position; p != (broker.Position{}) {
		l.Position = &linePosition{p.Partition, p.Offset, p.Token}
	}
	b, err := json.Marshal(l)
	return append(b, '\n'), err
}

func some(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// place is a position in words.
func place(p broker.Position) string {
	switch {
	case p.Token != "":
		return p.Token
	case p.Partition != "":
		return fmt.Sprintf("%s/%d", p.Partition, p.Offset)
	case p.Offset != 0:
		return fmt.Sprint(p.Offset)
	}
	return ""
}
