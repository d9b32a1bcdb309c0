package report_test

import (
	"fmt"
	"time"

	"github.com/onceline/onceline/conformance/report"
)

// hostile is what an attacker may put into a message ID, a broker's error or a
// reason: it closes elements, breaks tables and drives terminals.
const hostile = "</script><script>alert(1)</script>|`x`\n\x1b[31m\u202e\"'--><img src=x onerror=alert(2)>"

// example is a made-up report with every verdict, every field filled at least
// once, an unreached target, a surviving mutant and hostile text.
func example() *report.Report {
	r := &report.Report{
		Schema:  report.Schema,
		Toolkit: "v0.1.0",
		Seed:    18446744073709551615,
		Started: time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC),
		Seconds: 83.25,
		Command: "onceline conformance --targets nats,sqs-fifo,servicebus --seed 18446744073709551615",
		Claims: []report.Claim{
			{Claim: "publish.dedup.window", Hop: 1, Question: askWindow, Answers: []string{"none", "2m0s", "5m0s", "10m0s"}, Meaning: "A retry that comes later than this makes a second message in silence."},
			{Claim: "settle.late.outcome", Hop: 2, Question: askLate, Answers: []string{"confirmed", "lease lost"}, Meaning: "If it is confirmed, a message vanishes from under the consumer that works on it."},
		},
		Facts: []report.Fact{
			{ID: "NATS-F-02", Text: "The window is a setting of the stream, `Duplicates`.", Numbers: "default 2 min", Source: "nats-server `server/stream.go`", Confidence: "source, observed", Links: []string{"https://github.com/nats-io/nats-server"}},
			{ID: "SQS-F-22", Text: hostile, Source: hostile, Confidence: "documented", Links: []string{"javascript:alert(4)"}},
		},
		Targets: []report.Target{nats(), sqs(), serviceBus(), unreached()},
		Mutants: []report.Mutant{
			{Name: "new-id-per-retry", Layer: "adapter", Claim: "publish.retry.same-id", Killed: true, Answer: "second message", Reason: "a retry after a lost response was stored twice"},
			{Name: "swallows-ack-errors", Layer: "broker", Claim: "settle.late.outcome", Killed: true, Answer: "confirmed", Reason: "a settle past its lease reported Confirmed"},
			{Name: "extends-nothing", Layer: "adapter", Claim: "settle.extend.effect", Killed: false, Answer: "lease extended", Reason: "the probe's message was acked before the first lease ended"},
		},
	}
	r.Summarise()
	return r
}

const (
	askWindow = "For how long does the broker recognise a dedup ID it has stored before?"
	askLost   = "The broker stored the message but its answer was lost. What does a retry with the same ID add?"
	askLate   = "What does the broker answer to an ack after the lease has ended?"
	askCrash  = "The consumer dies between effect and ack. How often is the effect applied?"
	askOrder  = "Are two messages of one key delivered in the order in which they were stored?"
	askClock  = "What happens to a dedup ID when the broker's clock jumps back?"
)

func nats() report.Target {
	return report.Target{
		Name: "nats-embedded", Broker: "nats", Kind: report.KindEmulator, Real: true,
		Versions: map[string]string{"server": "2.15.3", "sdk": "1.55.0"},
		Findings: []report.Finding{
			{
				Claim: "publish.dedup.window", Hop: 1, Question: askWindow, Declared: "2m0s", Documented: "2m0s",
				Source:   []string{"NATS-F-02", "https://docs.nats.io/nats-concepts/jetstream/streams?a=1&b=2"},
				Observed: "2m0s", Basis: report.Measured, Verdict: report.Equal, Seconds: 1.204,
				Evidence: report.Evidence{Notes: []string{"the window was bisected in 7 steps"}, History: windowHistory()},
			},
			{
				Claim: "publish.lost-response", Hop: 1, Question: askLost, Declared: "no second message", Documented: "no second message",
				Source: []string{"NATS-F-05"}, Observed: "no second message", Basis: report.Measured, Verdict: report.Equal, Seconds: 0.412,
				Evidence: report.Evidence{
					Notes:   []string{"a second connection saw the message before the connection was cut"},
					History: lostHistory(),
				},
			},
			{
				Claim: "settle.late.outcome", Hop: 2, Question: askLate, Declared: "lease lost", Documented: "",
				Source: []string{"NATS-F-16"}, Observed: "confirmed", Basis: report.Measured, Verdict: report.Weaker, Seconds: 2.031,
				Reason:   "the server took an ack of a delivery that it had already given to another consumer",
				Evidence: report.Evidence{History: lateHistory()},
			},
			{
				Claim: "delivery.order.key", Hop: 2, Question: askOrder, Declared: "not kept", Documented: "not kept",
				Observed: "kept", Basis: report.Measured, Verdict: report.Stronger, Seconds: 0.9,
				Reason: "no pair of 2,000 came out of order", Evidence: report.Evidence{History: longHistory(90)},
			},
			{
				Claim: "effect.crash.before-ack", Hop: 3, Question: askCrash, Declared: "once", Documented: "", Observed: "once",
				Basis: report.Measured, Verdict: report.Equal, Seconds: 0.31, Evidence: report.Evidence{History: crashHistory()},
			},
			{
				Claim: "vendor.clock.back", Hop: 1, Question: askClock, Declared: "", Basis: report.Measured,
				Verdict: report.NotVerifiable, Reason: "the embedded server's clock is the machine's and cannot be moved",
			},
		},
	}
}

func sqs() report.Target {
	return report.Target{
		Name: "sqs-fifo", Broker: "sqs", Kind: report.KindEmulator,
		Versions:   map[string]string{"emulator": "v0.1.0", "sdk": "1.2.3"},
		Deviations: []report.Deviation{{Claim: "settle.late.outcome", Answer: "confirmed", Reason: "the emulator keeps the receipt handle of a released message"}},
		Findings: []report.Finding{
			{
				Claim: "publish.dedup.window", Hop: 1, Question: askWindow, Declared: "5m0s", Documented: "5m0s", Source: []string{"SQS-F-02"},
				Observed: "5m0s", Basis: report.Modelled, Verdict: report.Equal, Seconds: 0.02,
			},
			{
				Claim: "publish.lost-response", Hop: 1, Question: askLost, Declared: "no second message", Documented: "no second message",
				Basis: report.Modelled, Verdict: report.Failed, Reason: "publish: dial tcp 127.0.0.1:9324: connection refused", Seconds: 30,
			},
			{
				Claim: "settle.late.outcome", Hop: 2, Question: askLate, Declared: "lease lost", Documented: "lease lost", Source: []string{"SQS-F-22"},
				Observed: "confirmed", Basis: report.Modelled, Verdict: report.Deviates, Reason: "the emulator keeps the receipt handle of a released message", Seconds: 0.11,
			},
			{
				Claim: "delivery.order.key", Hop: 2, Question: askOrder, Declared: "kept", Documented: "kept", Observed: "kept",
				Basis: report.Modelled, Verdict: report.Equal, Seconds: 0.2,
			},
		},
	}
}

func serviceBus() report.Target {
	return report.Target{
		Name: "servicebus", Broker: "servicebus", Kind: report.KindLocal,
		Versions: map[string]string{"emulator": "1.1.2", "sdk": "1.9.0"},
		Findings: []report.Finding{
			{
				Claim: "publish.dedup.window", Hop: 1, Question: askWindow, Declared: "10m0s", Documented: "10m0s",
				Source: []string{"javascript:alert(3)"}, Observed: "10m0s", Basis: report.Measured, Verdict: report.Equal, Seconds: 0.5,
				Evidence: report.Evidence{
					Notes:   []string{hostile},
					History: []report.Event{{At: 0.1, Actor: report.Producer, Kind: "publish", ID: hostile, Note: hostile}},
				},
			},
			{
				Claim: "delivery.order.key", Hop: 2, Question: askOrder, Basis: report.Measured,
				Verdict: report.NotApplicable, Reason: "the queue was made without sessions",
			},
			{
				Claim: "settle.late.outcome", Hop: 2, Question: askLate, Declared: "lease lost", Documented: "lease lost",
				Observed: "消息锁已丢失 🔒", Basis: report.Measured, Verdict: report.Weaker, Reason: hostile, Seconds: 61,
			},
		},
	}
}

func unreached() report.Target {
	return report.Target{
		Name: "kafka-cloud", Broker: "kafka", Kind: report.KindCloud, Real: true,
		Error: "dial tcp: lookup broker.example.com: no such host",
	}
}

func windowHistory() []report.Event {
	return []report.Event{
		{At: 0.001, Actor: report.Producer, Kind: "publish", ID: "order-17"},
		{At: 0.003, Actor: report.Broker, Kind: "receipt", ID: "order-17", Note: "stored at 1"},
		{At: 0.004, Actor: report.Clock, Kind: "advance", Note: "1m59s"},
		{At: 0.005, Actor: report.Producer, Kind: "publish", ID: "order-17"},
		{At: 0.006, Actor: report.Broker, Kind: "receipt", ID: "order-17", Note: "duplicate of 1"},
		{At: 0.007, Actor: report.Clock, Kind: "advance", Note: "2s"},
		{At: 0.008, Actor: report.Producer, Kind: "publish", ID: "order-17"},
		{At: 0.010, Actor: report.Broker, Kind: "receipt", ID: "order-17", Note: "stored at 2"},
	}
}

func lostHistory() []report.Event {
	return []report.Event{
		{At: 0.000, Actor: report.Producer, Kind: "publish", ID: "order-18", Note: "first attempt"},
		{At: 0.012, Actor: report.Broker, Kind: "stored", ID: "order-18", Note: "seen through a second connection"},
		{At: 0.013, Actor: report.Fault, Kind: "cut", Note: "applied, response lost"},
		{At: 0.014, Actor: report.Producer, Kind: "receipt", ID: "order-18", Note: "unknown: connection reset by peer"},
		{At: 0.140, Actor: report.Producer, Kind: "publish", ID: "order-18", Note: "second attempt, same ID"},
		{At: 0.143, Actor: report.Broker, Kind: "receipt", ID: "order-18", Note: "duplicate of 1"},
	}
}

func lateHistory() []report.Event {
	return []report.Event{
		{At: 0.000, Actor: report.Producer, Kind: "publish", ID: "order-19"},
		{At: 0.002, Actor: report.Broker, Kind: "receipt", ID: "order-19", Note: "stored at 1"},
		{At: 0.005, Actor: report.Broker, Kind: "delivery", ID: "order-19", Note: "attempt 1, lease 1s"},
		{At: 1.210, Actor: report.Broker, Kind: "delivery", ID: "order-19", Note: "attempt 2, to another consumer"},
		{At: 1.250, Actor: report.Consumer, Kind: "settle", ID: "order-19", Note: "ack of attempt 1"},
		{At: 1.252, Actor: report.Broker, Kind: "outcome", ID: "order-19", Note: "confirmed"},
	}
}

func crashHistory() []report.Event {
	return []report.Event{
		{At: 0.000, Actor: report.Producer, Kind: "publish", ID: "0f8fad5b-d9cb-469f-a165-70867728950e"},
		{At: 0.001, Actor: report.Broker, Kind: "delivery", ID: "0f8fad5b-d9cb-469f-a165-70867728950e", Note: "attempt 1"},
		{At: 0.004, Actor: report.Consumer, Kind: "effect", ID: "0f8fad5b-d9cb-469f-a165-70867728950e", Note: "row and marker committed"},
		{At: 0.005, Actor: report.Consumer, Kind: "restart", Note: "killed before the ack"},
		{At: 1.010, Actor: report.Broker, Kind: "delivery", ID: "0f8fad5b-d9cb-469f-a165-70867728950e", Note: "attempt 2"},
		{At: 1.012, Actor: report.Store, Kind: "duplicate", ID: "0f8fad5b-d9cb-469f-a165-70867728950e", Note: "the marker was there"},
		{At: 1.013, Actor: report.Consumer, Kind: "settle", ID: "0f8fad5b-d9cb-469f-a165-70867728950e", Note: "ack"},
		{At: 1.014, Actor: report.Broker, Kind: "outcome", ID: "0f8fad5b-d9cb-469f-a165-70867728950e", Note: "confirmed"},
	}
}

func longHistory(n int) []report.Event {
	var out []report.Event
	for i := range n {
		e := report.Event{At: float64(i) / 100, Actor: report.Producer, Kind: "publish", ID: fmt.Sprintf("order-%d", 100+i/3)}
		switch i % 3 {
		case 1:
			e.Actor, e.Kind, e.Note = report.Broker, "receipt", fmt.Sprintf("stored at %d", i/3+1)
		case 2:
			e.Actor, e.Kind, e.Note = report.Broker, "delivery", "attempt 1"
		}
		out = append(out, e)
	}
	return out
}
