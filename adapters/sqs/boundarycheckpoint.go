package sqs

import "github.com/onceline/onceline/broker/boundary"

// checkpoints adds where the guarantees of pipelines that take checkpoints end, which
// write to this broker.
func checkpoints(e map[boundary.Claim]boundary.Entry) {
	boundary.Unprepared(e, "There are no transactions.", "SQS-F-41")
	boundary.Relayed(e, true, "The relay sends again what it had sent when it was killed, under the same ID, and the broker finds the copy within five minutes, within the same message group where it compares IDs there. What its window may have passed the relay holds for somebody to decide.", "SQS-F-01", "SQS-F-02")
}

// relayedTwice is what a pipeline has to know that writes to a standard queue.
const relayedTwice = "The relay sends again what it had sent when it was killed, under the same ID, and a standard queue doesn't know it: use a FIFO queue, or an inbox behind it."
