package sqs

import "github.com/onceline/onceline/broker/boundary"

// refusals is what publishers learn when something is in the way: refusals, failures
// in the middle, and what the broker hasn't got. For FIFO queues.
func refusals() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.PublishAckReplicated: {Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"SQS-F-120"}},
		boundary.PublishBatchAtomic: {
			Declared: boundary.InPart, Documented: boundary.InPart, Sources: []string{"SQS-F-14"},
			Note: "Each entry of a batch has its own answer.",
		},
		boundary.PublishUnroutable: {
			Declared: boundary.Kept, Sources: []string{"SQS-F-17", "SQS-F-41"},
			Note: "A queue is topic and subscription in one, and keeps what comes for its retention. A topic of SNS in front of it loses what it has no subscription for.",
		},
		boundary.PublishOversize: {
			Declared: boundary.RefusedUnsent, Documented: boundary.RefusedByBroker, Sources: []string{"SQS-F-15", "SQS-F-53"},
			Note: "Limits().Body says what fits beside the attributes.",
		},
		boundary.PublishMissingEntity: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"SQS-F-123"},
			Note: "ErrNotFound when the publisher is opened.",
		},
		boundary.PublishUnauthorized: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"SQS-F-122"},
			Note: "At the first request, which opening a publisher makes: a connection has no credentials of its own.",
		},
		boundary.PublishOrderKey: {
			Declared: boundary.OverFailure, Sources: []string{"SQS-F-12", "SQS-F-14"},
			Note: "Of a Publish with more than ten messages the adapter sends the next request of a key when the one before it is known to be stored.",
		},
		boundary.PublishCancel: {
			Declared: boundary.StaysUnknown, Sources: []string{"SQS-F-02", "SQS-F-13"},
			Note: "The message may be stored. Publish it again with the same ID; never with a new one.",
		},
		boundary.PublishRetryHorizon: {
			Declared: boundary.WindowExceeded, Documented: boundary.StoredAgain, Sources: []string{"SQS-F-02", "SQS-F-11"},
			Note: "broker.Retry ends each attempt before the window does, counted from Message.Time, and then says Unknown with ErrWindowExceeded. Keep Time over a restart of the producer, or the guard counts from there.",
		},
		boundary.PublishBackpressure: {
			Declared: boundary.PushedBack, Documented: boundary.PushedBack, Sources: []string{"SQS-F-121"},
			Note: "ErrBusy, and nothing of the request is stored: the SDK's own retry is off. broker.Retry backs off.",
		},
		boundary.PublishPartialRoute: {
			Declared: boundary.NotApplicable, Sources: []string{"SQS-F-500"},
			Note: "A queue is topic and subscription in one, and has no bound for what waits in it.",
		},
		boundary.PublishScheduled: {
			Declared: boundary.Unsupported, Documented: boundary.Unsupported, Sources: []string{"SQS-F-16"},
			Note: "A FIFO queue delays all messages or none, and a message can't ask for it. Hold it in an outbox until it is due.",
		},
		boundary.PublishRegion: {
			Declared: boundary.OneRegion, Documented: boundary.OneRegion, Sources: []string{"SQS-F-41"},
			Note: "A queue is in one region and remembers for itself. A producer that fails over to another region's queue makes a second message: dedup by ID.",
		},
	}
}

// standardRefusals is what is otherwise of standard queues.
func standardRefusals() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.PublishOrderKey: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"SQS-F-38"},
			Note: "A standard queue keeps no order.",
		},
		boundary.PublishCancel: {
			Declared: boundary.StaysUnknown, Sources: []string{"SQS-F-01", "SQS-F-13"},
			Note: "The message may be stored. Publish it again with the same ID; never with a new one. The queue doesn't dedup it: a store at the consumer has to.",
		},
		boundary.PublishRetryHorizon: {
			Declared: boundary.NotRetried, Sources: []string{"SQS-F-01"},
			Note: "broker.Retry doesn't send again what had no answer, for no window makes that safe. With AllowCopies it does: the consumer needs a dedup store on the ID.",
		},
		boundary.PublishScheduled: {
			Declared: boundary.DelayOnly, Documented: boundary.DelayOnly, Sources: []string{"SQS-F-16"},
			Note: "Up to 15 minutes; the contract has no word for it. For more hold the message in an outbox until it is due.",
		},
		boundary.PublishRegion: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"SQS-F-01", "SQS-F-41"},
			Note: "Nor does the queue itself.",
		},
	}
}
