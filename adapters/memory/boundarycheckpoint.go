package memory

import "github.com/onceline/onceline/broker/boundary"

// checkpoints adds where the guarantees of pipelines that take checkpoints end, which
// write to it.
func checkpoints(e map[boundary.Claim]boundary.Entry) {
	boundary.Unprepared(e, "Its transactions can be prepared and have no time to live, which a checkpoint asks for; its subscriptions can't be opened at a position.")
	boundary.Relayed(e, true, "The relay sends again what it had sent when it was killed, under the same ID, and the broker finds the copy within the topic's window. What its window may have passed the relay holds for somebody to decide.")
}
