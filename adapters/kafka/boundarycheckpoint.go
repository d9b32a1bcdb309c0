package kafka

import "github.com/onceline/onceline/broker/boundary"

// crossing is what a pipeline gets that reads another broker, whatever its own readers are.
var crossing = boundary.Entry{Declared: boundary.Once, Sources: []string{"KAF-F-14", "KAF-F-301"},
	Note: "By a checkpoint in a store, and a transaction that is committed behind it; the other broker's subscription has to be one that can be opened at a position. A consumer that publishes in a transaction and acks elsewhere makes a copy with each crash in between: no transaction spans two brokers. Readers must read committed records."}

// groupCheckpoints adds where the guarantees of pipelines that take checkpoints end: they
// read a consumer group, and write in a transaction.
func groupCheckpoints(e map[boundary.Claim]boundary.Entry) {
	e[boundary.CheckpointVisibility] = boundary.Entry{
		Declared: boundary.AfterCheckpoint, Sources: []string{"FLK-F-331", "KAF-F-15"},
		Note: "To receivers that read committed messages, as this toolkit's do; Kafka's own default is to read all. The interval between checkpoints is how much later, at most, and half of it on average.",
	}
	e[boundary.CheckpointTimeoutLoss] = boundary.Entry{
		Declared: boundary.LostAndTold, Sources: []string{"KAF-F-08", "KAF-F-420", "FLK-F-332", "FLK-F-333"},
		Note: "The broker aborts what is open for longer than it was asked for, by its own clock; Flink's sink logs that and goes on. Package pipeline checks at the start that interval, time for a checkpoint and restart budget fit, and at a loss stops, unless it is told to make the output again or to go on.",
	}
	e[boundary.CheckpointRecovery] = boundary.Entry{
		Declared: boundary.Once, Sources: []string{"KAF-F-301", "FLK-F-334"},
		Note: "The next process commits by the producer's ID and epoch, which the checkpoint has. A client that opens the transactional ID first aborts what was prepared.",
	}
	e[boundary.PipelineCrossBroker] = crossing
}

// shareCheckpoints is the same with a share group.
func shareCheckpoints(e map[boundary.Claim]boundary.Entry) {
	for _, claim := range []boundary.Claim{boundary.CheckpointVisibility, boundary.CheckpointTimeoutLoss, boundary.CheckpointRecovery} {
		e[claim] = boundary.Entry{Declared: boundary.Unsupported, Sources: []string{"KAF-F-52"},
			Note: "A pipeline can't read a share group, which has no position to go back to: it is refused. Let it read a consumer group."}
	}
	e[boundary.PipelineCrossBroker] = crossing
}
