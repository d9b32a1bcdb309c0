package bridge_test

import (
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/adapters/kafka"
	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/adapters/nats"
	"github.com/onceline/onceline/adapters/pubsub"
	"github.com/onceline/onceline/adapters/rabbitmq"
	"github.com/onceline/onceline/adapters/servicebus"
	"github.com/onceline/onceline/adapters/sqs"
	"github.com/onceline/onceline/bridge"
	"github.com/onceline/onceline/broker/boundary"
)

// TestJudge: what each far side gives, with an inbox and without, by what the adapters
// declare.
func TestJudge(t *testing.T) {
	minute := time.Minute
	for _, c := range []struct {
		name          string
		to            boundary.Boundary
		window        time.Duration
		direct, inbox bridge.Grade
		together      bool
	}{
		{"nats", nats.Boundary(), minute, bridge.WithinWindow, bridge.OnceOrHeld, false},
		{"sqs fifo", sqs.BoundaryFIFO(), 5 * minute, bridge.WithinWindow, bridge.OnceOrHeld, true},
		{"sqs standard", sqs.BoundaryStandard(), 0, bridge.Copies, bridge.Copies, false},
		{"service bus", servicebus.BoundaryQueue(), 10 * minute, bridge.WithinWindow, bridge.OnceOrHeld, true},
		{"service bus without duplicate detection", servicebus.BoundaryQueue(), 0, bridge.Copies, bridge.Copies, true},
		{"service bus sessions", servicebus.BoundarySessions(), minute, bridge.WithinWindow, bridge.OnceOrHeld, true},
		{"pubsub", pubsub.Boundary(), 0, bridge.Copies, bridge.Copies, true},
		{"pubsub exactly-once", pubsub.BoundaryExactlyOnce(), 0, bridge.Copies, bridge.Copies, true},
		{"rabbitmq", rabbitmq.BoundaryQuorum(), 0, bridge.Copies, bridge.Copies, false},
		{"rabbitmq streams", rabbitmq.BoundaryStream(), 0, bridge.Copies, bridge.Copies, true},
		{"kafka", kafka.GroupBoundary(), 0, bridge.Copies, bridge.Copies, true},
		{"memory", memory.Boundary(), minute, bridge.WithinWindow, bridge.OnceOrHeld, true},
	} {
		direct := bridge.Judge(bridge.Pairing{From: kafka.GroupBoundary(), To: c.to, Window: c.window})
		inbox := bridge.Judge(bridge.Pairing{From: kafka.GroupBoundary(), To: c.to, Window: c.window, Inbox: true})
		if direct.Grade != c.direct || inbox.Grade != c.inbox || direct.Together != c.together || !inbox.Together || len(direct.Why) == 0 || len(inbox.Why) == 0 {
			t.Errorf("%s: %v (%v), with an inbox %v", c.name, direct.Grade, direct.Together, inbox.Grade)
		}
	}
	// Without an inbox Kafka gets copies, and is told that it needn't; no other far side
	// that gets them is promised that.
	for _, to := range []boundary.Boundary{kafka.GroupBoundary(), kafka.ShareBoundary(), rabbitmq.BoundaryQuorum(), rabbitmq.BoundaryStream(), pubsub.Boundary(), sqs.BoundaryStandard(), memory.Boundary(), nats.Boundary()} {
		direct := bridge.Judge(bridge.Pairing{From: sqs.BoundaryStandard(), To: to})
		inbox := bridge.Judge(bridge.Pairing{From: sqs.BoundaryStandard(), To: to, Inbox: true})
		text, behind := strings.Join(direct.Why, " "), strings.Join(inbox.Why, " ")
		if direct.Grade != bridge.Copies || !strings.Contains(text, "one more copy with the same ID") || !strings.Contains(text, "need an inbox") ||
			strings.Contains(text, "(--inbox) makes it exactly once") != (to.Broker == "kafka") || strings.Contains(text, "but not those of the bridge's own") != (to.Broker != "kafka") ||
			strings.Contains(behind, "--no-transactions") != (to.Broker == "kafka") {
			t.Errorf("%s: %s\n%s", to.Broker, text, behind)
		}
	}
	for _, to := range []boundary.Boundary{kafka.GroupBoundary(), nats.Boundary()} {
		p := bridge.Judge(bridge.Pairing{From: nats.Boundary(), To: to, Inbox: true, Transactions: true})
		if p.Grade != bridge.Once || !p.Together || !strings.Contains(strings.Join(p.Why, " "), "read committed") {
			t.Errorf("in transactions: %+v", p)
		}
	}
	stays := bridge.Judge(bridge.Pairing{From: sqs.BoundaryStandard(), Stays: true})
	if stays.Grade != bridge.Once || !strings.Contains(strings.Join(stays.Notes, " "), "no order") {
		t.Errorf("%+v", stays)
	}
	narrow := bridge.Judge(bridge.Pairing{From: pubsub.Boundary(), To: servicebus.BoundaryQueue(), Window: minute})
	if !strings.Contains(strings.Join(narrow.Notes, " "), "256 KiB") {
		t.Errorf("%+v", narrow)
	}
}
