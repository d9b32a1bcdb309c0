package nats

import "github.com/onceline/onceline/broker/boundary"

// refusals is what publishers learn when something is in the way: refusals, failures
// in the middle, and what the broker hasn't got.
func refusals() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.PublishAckReplicated: {
			Declared: boundary.OneNode, Sources: []string{"NATS-F-11"},
			Note: "With one replica the stream is gone as long as its server is. Ask for three (the adapter's option Replicas).",
		},
		boundary.PublishBatchAtomic: {
			Declared: boundary.InPart, Sources: []string{"NATS-F-05", "NATS-F-32"},
			Note: "The server has atomic batches, of one stream; this adapter publishes each message by itself.",
		},
		boundary.PublishUnroutable: {
			Declared: boundary.Kept, Sources: []string{"NATS-F-122"},
			Note: "By the stream's limits. With interest retention it is lost.",
		},
		boundary.PublishOversize: {
			Declared: boundary.RefusedUnsent, Documented: boundary.HarmsOthers, Sources: []string{"NATS-F-29", "NATS-F-123"},
			Note: "The server closes the connection of who sends more than max_payload, with all that is in flight on it; here nothing over the limit is sent.",
		},
		boundary.PublishMissingEntity: {
			Declared: boundary.Refused, Sources: []string{"NATS-F-13", "NATS-F-121"},
			Note: "ErrNotFound when the publisher is opened; ErrUnroutable where the stream goes away later.",
		},
		boundary.PublishUnauthorized: {
			Declared: boundary.Refused, Sources: []string{"NATS-F-120"},
			Note: "When the connection is opened. An open one whose credentials end is cut off, and its publishes are Unknown or ErrUnavailable.",
		},
		boundary.PublishOrderKey: {
			Declared: boundary.UntilFailure, Sources: []string{"NATS-F-124"},
			Note: "Each message is a request of its own. One message of a key at a time, as broker.NewBatcher(p, lanes, 1) does, keeps the order; a whole batch in flight doesn't.",
		},
		boundary.PublishCancel: {
			Declared: boundary.StaysUnknown, Sources: []string{"NATS-F-13"},
			Note: "The message may be stored. Publish it again with the same ID; never with a new one.",
		},
		boundary.PublishRetryHorizon: {
			Declared: boundary.WindowExceeded, Sources: []string{"NATS-F-02", "NATS-F-05"},
			Note: "broker.Retry ends each attempt before the window does, counted from Message.Time, and then says Unknown with ErrWindowExceeded. Keep Time over a restart of the producer, or the guard counts from there.",
		},
		boundary.PublishBackpressure: {
			Declared: boundary.PushedBack, Documented: boundary.PushedBack, Sources: []string{"NATS-F-125"},
			Note: "ErrBusy from a stream that is full and discards new messages. By default a stream at its limits discards its oldest instead, unread or not, and says nothing.",
		},
		boundary.PublishPartialRoute: {
			Declared: boundary.NotApplicable, Sources: []string{"NATS-F-500"},
			Note: "Limits that refuse are the stream's, and then nobody gets the message. A consumer is a place in the stream: one that is behind at most loses what the stream discards.",
		},
		boundary.PublishScheduled: {
			Declared: boundary.Scheduled, Documented: boundary.Scheduled, Sources: []string{"NATS-F-36"},
			Note: "By a header, from 2.12 on, on a stream that allows it; the contract has no word for it. The ID protects the publish of the schedule, not the message that comes of it.",
		},
		boundary.PublishRegion: {
			Declared: boundary.OneRegion, Sources: []string{"NATS-F-01", "NATS-F-04"},
			Note: "The stream is the scope, wherever its publishers are. A mirror, or a stream with sources, in another region has no window unless it is given one, and knows nothing of the IDs of the first.",
		},
	}
}
