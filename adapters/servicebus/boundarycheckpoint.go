package servicebus

import "github.com/onceline/onceline/broker/boundary"

// checkpoints adds where the guarantees of pipelines that take checkpoints end, which
// write to this broker.
func checkpoints(e map[boundary.Claim]boundary.Entry) {
	boundary.Unprepared(e, "The SDK for Go has no transactions, and the broker's own live two minutes.", "SB-F-300")
	boundary.Relayed(e, true, "The relay sends again what it had sent when it was killed, under the same ID, and the broker finds the copy within the window of its duplicate detection. What its window may have passed the relay holds for somebody to decide.", "SB-F-01")
}
