package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// WriteJSON writes r as indented JSON that docs/report.schema.json describes.
// The schema field is filled in and lists without an entry are [], never null.
// It returns an error if a number has no form in JSON (NaN, infinity).
func WriteJSON(w io.Writer, r *Report) error {
	if err := checkSchema(r.Schema, true); err != nil {
		return err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r.mapped(validUTF8)); err != nil {
		return fmt.Errorf("report: json: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// ErrSchema is wrapped by [ReadJSON] for a document that is no report of the
// format this package knows.
var ErrSchema = errors.New("unknown report schema")

func checkSchema(s string, emptyOK bool) error {
	if s == Schema || s == "" && emptyOK {
		return nil
	}
	return fmt.Errorf("report: %w %q: want %q", ErrSchema, s, Schema)
}

// ReadJSON reads one report as [WriteJSON] writes it. A different schema is an
// [ErrSchema]; unknown fields, words outside their closed set (kind, basis,
// verdict, actor), hops other than 1 to 3 and anything after the report are
// errors too: a report that is half understood would read as fewer differences
// than there are.
func ReadJSON(rd io.Reader) (*Report, error) {
	data, err := io.ReadAll(rd)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	// The schema is read on its own first, so that a later format fails by its
	// name and not by some field that is new in it.
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	if err := checkSchema(head.Schema, false); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	r := new(Report)
	if err := dec.Decode(r); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	for _, c := range r.Claims {
		if c.Hop < 1 || c.Hop > 3 {
			return nil, fmt.Errorf("report: claim %q: hop %d, want 1 to 3", c.Claim, c.Hop)
		}
	}
	for i := range r.Targets {
		if err := r.Targets[i].check(); err != nil {
			return nil, fmt.Errorf("report: target %q: %w", r.Targets[i].Name, err)
		}
	}
	for i := range r.Soaks {
		if err := r.Soaks[i].check(); err != nil {
			return nil, fmt.Errorf("report: soak %q: %w", r.Soaks[i].Target, err)
		}
	}
	return r, nil
}

// check looks at what the types leave open: the closed sets of words.
func (t *Target) check() error {
	switch t.Kind {
	case KindEmulator, KindLocal, KindCloud:
	default:
		return fmt.Errorf("unknown kind %q", t.Kind)
	}
	for i := range t.Findings {
		if err := t.Findings[i].check(); err != nil {
			return fmt.Errorf("claim %q: %w", t.Findings[i].Claim, err)
		}
	}
	return nil
}

func (f *Finding) check() error {
	if !f.Verdict.Valid() {
		return fmt.Errorf("unknown verdict %q", f.Verdict)
	}
	if f.Hop < 1 || f.Hop > 3 {
		return fmt.Errorf("hop %d, want 1 to 3", f.Hop)
	}
	if f.Basis != Measured && f.Basis != Modelled {
		return fmt.Errorf("unknown basis %q", f.Basis)
	}
	for _, e := range f.Evidence.History {
		switch e.Actor {
		case Producer, Broker, Consumer, Store, Fault, Clock:
		default:
			return fmt.Errorf("unknown actor %q", e.Actor)
		}
	}
	return nil
}
