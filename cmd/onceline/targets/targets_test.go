package targets_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/internal/sidebyside"
	"github.com/onceline/onceline/localstack"
)

func TestMain(m *testing.M) {
	localstack.RunIfChild()
	conformance.RunIfWorker(append(targets.Stores(), wrongStores()...)...)
	sidebyside.Tests(6)
	code := m.Run()
	if code == 0 {
		// A package that Pub/Sub's client imports starts this as it is loaded.
		if err := goleak.Find(goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start")); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

func TestBoundariesAreComplete(t *testing.T) {
	t.Parallel()
	for _, target := range targets.Embedded() {
		missing, wrong := conformance.Undeclared(target.Boundary)
		for _, n := range boundary.LimitNames() {
			if l, ok := target.Boundary.Limits[n]; !ok || len(l.Sources) == 0 && target.Broker != "memory" {
				t.Errorf("%s: the limit of %s has no value or no source", target.Name, n)
			}
		}
		if len(missing) > 0 || len(wrong) > 0 {
			t.Errorf("%s: no entry for %v; wrong: %v", target.Name, missing, wrong)
		}
		for _, d := range target.Deviations {
			c, ok := conformance.Lookup(d.Claim)
			if !ok || d.Reason == "" {
				t.Errorf("%s: deviation %+v", target.Name, d)
			}
			if target.Boundary.Entries[d.Claim].Declared == d.Answer {
				t.Errorf("%s: %s deviates to what is declared", target.Name, c.ID)
			}
		}
		for id, e := range target.Boundary.Entries {
			if target.Broker != "memory" && len(e.Sources) == 0 {
				t.Errorf("%s: %s has no source", target.Name, id)
			}
		}
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		globs []string
		want  []string
	}{
		{nil, []string{"sqs-standard", "sqs-fifo", "sqs-fifo-groups", "pubsub", "pubsub-exactly-once", "pubsub-exactly-once-ordered", "servicebus-queue", "servicebus-sessions",
			"rabbitmq-classic", "rabbitmq-quorum", "rabbitmq-stream", "nats", "kafka-group", "kafka-share", "memory"}},
		{[]string{"rabbitmq", "sqs-*"}, []string{"sqs-standard", "sqs-fifo", "sqs-fifo-groups", "rabbitmq-classic", "rabbitmq-quorum", "rabbitmq-stream"}},
		{[]string{"kafka"}, []string{"kafka-group", "kafka-share"}},
		{[]string{"kafka-s*", "nats"}, []string{"nats", "kafka-share"}},
	} {
		got, err := targets.Select(targets.Embedded(), c.globs)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, g := range got {
			names = append(names, g.Name)
		}
		if len(names) != len(c.want) {
			t.Fatalf("%v: %v", c.globs, names)
		}
		for i := range names {
			if names[i] != c.want[i] {
				t.Errorf("%v: %v", c.globs, names)
			}
		}
	}
	if _, err := targets.Select(targets.Embedded(), []string{"nats", "pulsar"}); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("an unknown broker: %v", err)
	}
}

func TestByURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"nats://127.0.0.1:4222":                       "nats-url",
		"nats+tls://user:secret@broker:4222":          "nats-url",
		"kafka://127.0.0.1:9092,127.0.0.1:9093":       "kafka-group-url",
		"kafka://user:secret@broker:9092/?mode=share": "kafka-share-url",
		"sqs://":                                "sqs-standard-url",
		"sqs://127.0.0.1:1/?fifo=true":          "sqs-fifo-url",
		"pubsub:///project":                     "pubsub-url",
		"pubsub:///p?exactly-once=true":         "pubsub-exactly-once-url",
		"servicebus://key:secret@ns.example":    "servicebus-queue-url",
		"servicebus://ns.example?sessions=true": "servicebus-sessions-url",
		"rabbitmq://guest:secret@127.0.0.1/":    "rabbitmq-quorum-url",
		"rabbitmq+tls://broker/?queue=classic":  "rabbitmq-classic-url",
		"rabbitmq://broker/vhost?queue=stream":  "rabbitmq-stream-url",
	} {
		got, err := targets.ByURL(raw)
		if err != nil || got.Name != want || !got.Real {
			t.Errorf("%s: %q, %v", raw, got.Name, err)
		}
	}
	for _, raw := range []string{"", "nats", "http://secret@x", "mem://x", "tls://x"} {
		_, err := targets.ByURL(raw)
		if !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%q: %v", raw, err)
			continue
		}
		if s := err.Error(); !strings.HasSuffix(s, "there are: kafka, nats, nats+tls, pubsub, rabbitmq, rabbitmq+tls, servicebus, sqs") || strings.Contains(s, "secret") {
			t.Errorf("%q: %v", raw, err)
		}
	}
}
