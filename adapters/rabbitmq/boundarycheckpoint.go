package rabbitmq

import "github.com/onceline/onceline/broker/boundary"

// checkpoints adds where the guarantees of pipelines that take checkpoints end, which
// write to queues.
func checkpoints(e map[boundary.Claim]boundary.Entry) {
	boundary.Unprepared(e, "A transaction belongs to its channel, and ends with it.", "RMQ-F-300")
	boundary.Relayed(e, false, "The relay sends again what it had sent when it was killed, under the same ID, and the broker doesn't know it: the consumers behind it need an inbox.", "RMQ-F-01", "RMQ-F-02")
}

// streamCheckpoints is the same of streams.
func streamCheckpoints(e map[boundary.Claim]boundary.Entry) {
	boundary.Unprepared(e, "The protocol of streams has no transactions.", "RMS-F-01")
	boundary.Relayed(e, false, "The relay sends again what it had sent when it was killed, and a stream doesn't find it: each publisher has a reference of its own. The consumers behind it need an inbox.", "RMS-F-01", "RMS-F-04")
}
