package conformance

import (
	"testing"

	"github.com/onceline/onceline/broker"
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
