// Package pipeline reads sources, runs an operator with state, and writes its output,
// so that each message counts once in the state and once in the output, whatever
// crashes.
//
// A pipeline takes a checkpoint from time to time (Options.Interval): the sink
// prepares what was written since the last one, one record in a store says where the
// sources stand, what the operator's state is and what is prepared, and then the sink
// commits. A process that dies is replaced by another, or itself begun anew, that
// reads the record, commits what is prepared, and goes on from there.
//
//	p, err := pipeline.New(pipeline.Config[*sql.Tx]{
//		Name:     "billing",
//		Store:    store, // of package dedup/sqlite or dedup/postgres
//		Sources:  []pipeline.Source{pipeline.From(kafka, "orders/billing")},
//		Operator: pipeline.Operator{Process: process, State: &totals},
//		Sink:     pipeline.Transactional[*sql.Tx](kafka, "billing", pipeline.TransactionalOptions{}),
//		Options:  pipeline.Options{Interval: 5 * time.Second},
//	})
//	err = p.Run(ctx)
//
// # Sinks
//
// [Transactional] keeps a transaction of Kafka open over the checkpoint. Its output
// is seen by readers of committed messages, an interval later. [Database] writes into
// the store itself, in the record's transaction. [Outbox] does the same with messages,
// which a [dedup.Relay] sends to any broker. The latter two have nothing that could
// be lost between two systems.
//
// # Loss
//
// What a transactional sink has prepared lives as long as its broker lets it: Kafka
// aborts a transaction that is open for too long, though a checkpoint counts on it. A
// pipeline whose interval, checkpoint timeout and restart budget don't fit into that
// time doesn't begin ([ErrBudget]). If it happens all the same, it is an error in the
// log, in the metrics, at Options.Loss, and by default [ErrDataLoss] from Run; see
// [OnLoss].
//
// # What it rests on
//
// The store keeps what it has committed. The source can be opened at a position, and
// its offsets are those of the same messages as before. The operator does what it
// does by its state and its output alone, and one process at a time runs the
// pipeline: the last one that began, the one before being refused at its next
// checkpoint. Where one process isn't enough, run several pipelines, each with a name
// and sources of its own.
//
// A partition of which no checkpoint knows begins where the source's broker says. If
// that is the end, what comes before the first checkpoint is lost with a crash.
//
// docs/pipeline.md is the guide.
package pipeline
