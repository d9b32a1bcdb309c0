package pubsub

import "github.com/onceline/onceline/broker/boundary"

// checkpoints adds where the guarantees of pipelines that take checkpoints end, which
// write to this broker.
func checkpoints(e map[boundary.Claim]boundary.Entry) {
	boundary.Unprepared(e, "There are no transactions.", "PS-F-300")
	boundary.Relayed(e, false, "The relay sends again what it had sent when it was killed, under the same ID, and the broker doesn't know it: the consumers behind it need an inbox.", "PS-F-01", "PS-F-02")
}
