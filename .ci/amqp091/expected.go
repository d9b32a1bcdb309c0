package main

import "slices"

// column is a broker that the table speaks of.
type column int

const (
	onEmulator          column = iota // with its defaults, which are those of 4.3
	onEmulatorTransient               // and transient queues permitted
	onReal                            // 3.10.8
	numColumns
)

func (c column) String() string {
	return [numColumns]string{"the emulator", "the emulator with transient queues permitted", "the real server"}[c]
}

// outcome is what becomes of a test, in the words of go test.
type outcome string

const (
	pass  outcome = "pass"
	fail  outcome = "fail"
	skip  outcome = "skip"
	flaky outcome = "flaky" // passes, at the latest at the third try
)

// expectation is a test that doesn't simply pass on each of the brokers.
type expectation struct {
	test string
	want [numColumns]outcome
	says string // what it prints where it fails or is skipped, so that it is for this reason
	why  string
}

// table is the expected differences; docs/emulators.md shows it.
var table = []expectation{
	{
		"ExampleConnection_reconnect", [numColumns]outcome{fail, pass, pass}, "Exception (541)",
		"it declares a queue that is neither durable nor exclusive, which 4.3 refuses by default and 3.10 permits (RMQ-F-25)",
	},
	{
		"TestConnection_Close_WhenMemoryAlarmIsActive", [numColumns]outcome{skip, skip, skip}, "for rabbitmqctl not found",
		"it raises a memory alarm by rabbitmqctl on the broker's machine; the emulator has no such alarms",
	},
	{
		"TestConnectionRecoverySkipAndContinueNoInfiniteLoop", [numColumns]outcome{flaky, flaky, pass}, "",
		"a race in the client, seen before a broker that answers at once",
	},
}

// lookup returns what is expected of a test, and whether the table lists it.
func lookup(test string) (expectation, bool) {
	i := slices.IndexFunc(table, func(e expectation) bool { return e.test == test })
	if i < 0 {
		return expectation{test: test, want: [numColumns]outcome{pass, pass, pass}}, false
	}
	return table[i], true
}
