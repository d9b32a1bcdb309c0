package conformance

import (
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

func TestDifference(t *testing.T) {
	in := broker.Message{ID: "id", Copy: "copy", Key: "key", Body: []byte{0, 255},
		Headers: broker.Headers{{Key: "a", Value: "1"}, {Key: "b"}, {Key: "a", Value: "\x00"}}}
	for name, change := range map[string]func(*broker.Message){
		"":                  func(*broker.Message) {},
		"ID":                func(m *broker.Message) { m.ID = "other" },
		"copy":              func(m *broker.Message) { m.Copy = "" },
		"key":               func(m *broker.Message) { m.Key = "" },
		"body":              func(m *broker.Message) { m.Body = []byte{0} },
		"body, same size":   func(m *broker.Message) { m.Body = []byte{0, 254} },
		"header lost":       func(m *broker.Message) { m.Headers = m.Headers[:2] },
		"headers reordered": func(m *broker.Message) { m.Headers = broker.Headers{in.Headers[1], in.Headers[0], in.Headers[2]} },
		"header's value":    func(m *broker.Message) { m.Headers = broker.Headers{in.Headers[0], in.Headers[1], {Key: "a"}} },
		"header's case":     func(m *broker.Message) { m.Headers = broker.Headers{in.Headers[0], {Key: "B"}, in.Headers[2]} },
	} {
		out := in
		change(&out)
		if why := difference(&in, &out); (why == "") != (name == "") {
			t.Errorf("%q: %q", name, why)
		}
	}
	// Whether an empty body is nil is not the message's.
	if why := difference(&broker.Message{}, &broker.Message{Body: []byte{}, Headers: broker.Headers{}}); why != "" {
		t.Error(why)
	}
}

func TestWhen(t *testing.T) {
	lease := &Bench{Target: &Target{Lease: 10 * time.Second, Patience: time.Second}}
	session := &Bench{Target: &Target{Session: 10 * time.Second, Patience: time.Second}}
	for _, c := range []struct {
		b     *Bench
		after time.Duration
		want  boundary.Answer
	}{
		{lease, 0, boundary.AtOnce},
		{lease, 7 * time.Second, boundary.AtOnce},
		{lease, 8 * time.Second, boundary.AfterLease}, // a lease is counted from before the hand-over
		{lease, 13 * time.Second, boundary.AfterLease},
		{lease, 14 * time.Second, boundary.Late},
		{session, 7 * time.Second, boundary.AtOnce},
		{session, 10 * time.Second, boundary.AfterSession},
		{session, 15 * time.Second, boundary.Late},
	} {
		if got := c.b.when(c.after, c.b.Target.Lease); got != c.want {
			t.Errorf("%s with %s: %s, want %s", c.after, c.b.bounds(c.b.Target.Lease), got, c.want)
		}
	}
}
