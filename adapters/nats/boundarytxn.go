package nats

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// transactions adds what atomic batches give, in streams that take them
// ([AtomicBatches]).
func transactions(e map[boundary.Claim]boundary.Entry) map[boundary.Claim]boundary.Entry {
	batch := []string{"NATS-F-300"}
	maps.Copy(e, map[boundary.Claim]boundary.Entry{
		boundary.TxnScope: {
			Declared: boundary.PublishesToOne, Documented: boundary.PublishesToOne, Sources: batch,
			Note: "Publishes to one stream that allows it (allow_atomic, server 2.12), up to 1,000. No ack can be in it: what is read, worked on and written needs an inbox.",
		},
		boundary.TxnAtomic: {
			Declared: boundary.AllOrNone, Documented: boundary.AllOrNone, Sources: batch,
			Note: "The adapter sends the batch as it is committed, so a process that dies before has left nothing.",
		},
		boundary.TxnZombie: {
			Declared: boundary.TakesEffect, Sources: batch,
			Note: "The ID is a name, and nobody is fenced: two instances both commit. IDs of messages that two make alike are what keeps the second out, for a batch with a known ID is refused.",
		},
		boundary.TxnTimeout: {
			Declared: boundary.Unsupported, Sources: batch,
			Note: "There is nothing open at the server to be aborted: a batch that gets no next message for 10 s is dropped there, and the adapter sends it in one go.",
		},
		boundary.TxnCommitUnknown: {
			Declared: boundary.Resolved, Sources: batch,
			Note: "By looking for the batch in the stream, or sending it again under the same message IDs, within the stream's window. Behind it the answer stays Unknown.",
		},
		boundary.TxnReadUncommitted: {
			Declared: boundary.CommittedAlone, Documented: boundary.CommittedAlone, Sources: batch,
			Note: "A batch is in the stream as a whole or not at all.",
		},
		boundary.TxnExternalEffect: {
			Declared: boundary.Twice, Sources: batch,
			Note: "Once for each attempt. Guard it by an inbox, or derive it from the outputs.",
		},
		boundary.TxnRewind: {
			Declared: boundary.NotApplicable, Sources: batch,
			Note: "Acks can't be in a transaction: nack the inputs of one that was aborted.",
		},
	})
	return e
}
