package rabbitmq

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// transactions adds what AMQP's tx gives with queues.
func transactions(e map[boundary.Claim]boundary.Entry) map[boundary.Claim]boundary.Entry {
	tx := []string{"RMQ-F-300"}
	maps.Copy(e, map[boundary.Claim]boundary.Entry{
		boundary.TxnScope: {
			Declared: boundary.PublishesAndSettles, Documented: boundary.PublishesAndSettles, Sources: tx,
			Note: "Publishes, and acks of one receiver. A message that no queue takes is lost at the commit, and told. Dead letters are published before, and stay after an abort.",
		},
		boundary.TxnAtomic: {
			Declared: boundary.AllOrNone, Sources: tx,
			Note: "When the client dies. A node that dies within a commit can leave some of its queues with their part and others without: the vendor promises it for a single queue alone, and an input and an output are two. Process asks for Torn.",
		},
		boundary.TxnZombie: {
			Declared: boundary.TakesEffect, Sources: tx,
			Note: "The ID is a name, and nobody is fenced. An input's channel is what fences: a connection that the node took for dead can't commit its acks.",
		},
		boundary.TxnTimeout: {
			Declared: boundary.Unsupported, Sources: tx,
			Note: "A transaction lasts as long as its channel. The consumer timeout closes the channel of inputs that are held for longer.",
		},
		boundary.TxnCommitUnknown: {
			Declared: boundary.StaysUnknown, Sources: tx,
			Note: "Nobody can be asked: what comes again was not committed. A transaction without inputs has nothing that could come again, so dedup its outputs by their IDs.",
		},
		boundary.TxnReadUncommitted: {
			Declared: boundary.CommittedAlone, Documented: boundary.CommittedAlone, Sources: tx,
			Note: "What is published is in no queue before the commit.",
		},
		boundary.TxnExternalEffect: {
			Declared: boundary.Twice, Sources: tx,
			Note: "Once for each attempt. Guard it by an inbox, or derive it from the outputs.",
		},
		boundary.TxnRewind: {
			Declared: boundary.Behind, Sources: append([]string{"RMQ-F-40"}, tx...),
			Note: "At the end of the queue, behind all others, for Ensure sets no delivery limit unless MaxDeliveries is wished for; with one they come before all others.",
		},
	})
	return e
}

// classicTransactions is what is otherwise with classic queues.
func classicTransactions(e map[boundary.Claim]boundary.Entry) {
	e[boundary.TxnRewind] = boundary.Entry{
		Declared: boundary.AtOnce, Sources: []string{"RMQ-F-19", "RMQ-F-300"},
		Note: "At their old places, with what else the receiver had in hand.",
	}
}

// streamTransactions adds that streams have none.
func streamTransactions(e map[boundary.Claim]boundary.Entry) map[boundary.Claim]boundary.Entry {
	return boundary.WithoutTransactions(e, "The streams' protocol has no transactions: a publish is known by its publishing ID, and an offset is stored by itself. Use a stored position beside the effect, and an outbox for outputs.", "RMS-F-01", "RMS-F-10")
}
