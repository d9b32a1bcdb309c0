package nats

import "github.com/onceline/onceline/broker/boundary"

// checkpoints adds where the guarantees of pipelines that take checkpoints end, which
// write to this broker.
func checkpoints(e map[boundary.Claim]boundary.Entry) {
	boundary.Unprepared(e, "An atomic batch is sent when it is committed: nothing of it is with the broker before.", "NATS-F-300")
	boundary.Relayed(e, true, "The relay sends again what it had sent when it was killed, under the same ID, and the broker finds the copy within the stream's window. What its window may have passed the relay holds for somebody to decide.", "NATS-F-01", "NATS-F-05")
}
