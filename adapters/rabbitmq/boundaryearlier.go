package rabbitmq

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// The configurations that the boundaries are of.
const (
	quorumOf  = "quorum queue declared by Ensure, exchange with one queue, AMQP 0-9-1"
	classicOf = "durable classic queue declared by Ensure, exchange with one queue, AMQP 0-9-1"
)

// quorum3 is what is otherwise of quorum queues before 4.0. The answers are those of
// 4.3; what they cost differs.
func quorum3() boundary.Earlier {
	return boundary.Earlier{
		Before: "4.0",
		Of:     "RabbitMQ 3.10.8 as measured, " + quorumOf,
		Limits: limits3(),
		Entries: map[boundary.Claim]boundary.Entry{
			boundary.PublishAckDurable: {
				Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"RMQ-F-03", "RMQ-F-42"},
				Note: "Once the queue is older than a second or so: a node writes down with a delay which log belongs to a new queue, and where all of its nodes are killed before, the queue is back with nothing in it and takes nothing, whatever was confirmed. Ensure well before the first publish.",
			},
			boundary.DeliverRedeliverExpiry: {
				Declared: boundary.AfterLease, Documented: boundary.AfterLease, Sources: []string{"RMQ-F-13"},
				Note: "By the node's consumer timeout, 30 minutes by default. Before 3.12 it is one for all queues. A channel looks once a minute by default, and is closed for one late message with all that it holds. A lease can't be extended.",
			},
			boundary.DeliverAttempt: {
				Declared: boundary.Exact, Documented: boundary.Exact, Sources: []string{"RMQ-F-15", "RMQ-F-16"},
				Note: "Each return counts, also of what a cancelled Receive gave back.",
			},
			boundary.DeliverCancel: {
				Declared: boundary.GivenBack, Sources: []string{"RMQ-F-12", "RMQ-F-15"},
				Note: "It costs the message an attempt.",
			},
			boundary.DeliverRedeliverNack: {
				Declared: boundary.Behind, Sources: []string{"RMQ-F-40"},
				Note: "Before 4.0 a queue has no delivery limit unless it was declared with one (Entity.MaxDeliveries): what is given back goes to its end. With a limit it comes before all others.",
			},
		},
	}
}

// classic42 is what is otherwise of classic queues before 4.3, when nodes had one
// timeout for all kinds of queue.
func classic42() boundary.Earlier {
	e := boundary.Earlier{
		Before: "4.3",
		Of:     "RabbitMQ 4.2 by its source and documentation, " + classicOf,
		Entries: map[boundary.Claim]boundary.Entry{
			boundary.DeliverRedeliverExpiry: {
				Declared: boundary.AfterLease, Documented: boundary.AfterLease, Sources: []string{"RMQ-F-13"},
				Note: "By the node's consumer timeout, 30 minutes by default. A channel looks once a minute by default, and is closed for one late message with all that it holds. A lease can't be extended.",
			},
		},
	}
	maps.Copy(e.Entries, timeouts())
	return e
}

// classic3 adds to classic42 which release it was measured on.
func classic3() boundary.Earlier {
	return boundary.Earlier{Before: "4.0", Of: "RabbitMQ 3.10.8 as measured, " + classicOf, Limits: limits3()}
}

// stream310 is what is otherwise of streams before 3.11, which brought the single
// active consumer.
func stream310() boundary.Earlier {
	const both = "Receivers of a name take no turns: each gets every message, while another holds it."
	return boundary.Earlier{
		Before: "3.11",
		Of:     "RabbitMQ 3.10.8 as measured, stream, every receiver active, a reference for each publisher",
		Entries: map[boundary.Claim]boundary.Entry{
			boundary.DeliverRedeliverExpiry: {
				Declared: boundary.Early, Sources: []string{"RMS-F-10", "RMS-F-16"},
				Note: both + " The adapter warns of it in the log. Run one receiver of a name.",
			},
			boundary.DeliverRedeliverCrash: {
				Declared: boundary.AtOnce, Documented: boundary.AtOnce, Sources: []string{"RMS-F-10", "RMS-F-16"},
				Note: both + " All that the stored offset didn't pass comes to the next receiver that opens.",
			},
			boundary.SettleStale: {
				Declared: boundary.ClaimedDone, Sources: []string{"RMS-F-14", "RMS-F-16"},
				Note: both + " So no ack is late: it stores the offset, and is Confirmed.",
			},
			boundary.VendorSettleStale: {
				Declared: boundary.ClaimedDone, Documented: boundary.TakesEffect, Sources: []string{"RMS-F-12", "RMS-F-14", "RMS-F-16"},
				Note: "The broker takes any offset from anybody, a lower one too. It doesn't take the message from a receiver that has it.",
			},
			boundary.SettleNackStale: {
				Declared: boundary.ClaimedDone, Sources: []string{"RMS-F-10", "RMS-F-16"},
				Note: both + " So no nack is late: it is Confirmed, and the message comes again to the receiver that gave it back.",
			},
			boundary.SettleExtendStale: {
				Declared: boundary.ClaimedDone, Sources: []string{"RMS-F-10", "RMS-F-16"},
				Note: both + " So there is no turn to lose, and an Extend is Confirmed.",
			},
			boundary.FenceZombie: {
				Declared: boundary.ClaimedDone, Sources: []string{"RMS-F-12", "RMS-F-16"},
				Note: both + " One that stood still goes on, and is told that its settles count.",
			},
			boundary.EffectZombie: {
				Declared: boundary.Twice, Sources: []string{"RMS-F-12", "RMS-F-16"},
				Note: "The late ack is Confirmed. A stored position with compare-and-set fences the effect.",
			},
		},
	}
}
