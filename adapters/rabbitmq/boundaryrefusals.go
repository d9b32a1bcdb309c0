package rabbitmq

import "github.com/onceline/onceline/broker/boundary"

// refusals is what publishers learn when something is in the way: refusals, failures
// in the middle, and what the broker hasn't got. For quorum queues.
func refusals() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.PublishAckReplicated: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"RMQ-F-03", "RMQ-F-123"},
			Note: "With three nodes: a confirm means that a majority has it.",
		},
		boundary.PublishBatchAtomic: {
			Declared: boundary.InPart, Sources: []string{"RMQ-F-04", "RMQ-F-07"},
			Note: "Each message has its own confirm. AMQP's transactions cover one queue's acceptance and aren't used.",
		},
		boundary.PublishUnroutable: {
			Declared: boundary.Refused, Documented: boundary.Lost, Sources: []string{"RMQ-F-04"},
			Note: "The broker confirms what it then drops; the adapter publishes as mandatory, so the return comes first: ErrUnroutable. Ensure the subscription before the first publish, or publish to a stream.",
		},
		boundary.PublishOversize: {
			Declared: boundary.RefusedUnsent, Documented: boundary.HarmsOthers, Sources: []string{"RMQ-F-24"},
			Note: "The node closes the channel once it has read it all, and with it the confirms of what was in flight. Tell the adapter the node's limit (?max-body=) where it isn't the default.",
		},
		boundary.PublishMissingEntity: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"RMQ-F-30"},
			Note: "ErrNotFound when the publisher is opened. An exchange that is deleted later closes the channel at the next publish.",
		},
		boundary.PublishUnauthorized: {
			Declared: boundary.Refused, Sources: []string{"RMQ-F-120"},
			Note: "ErrUnauthorized when the connection is opened, at once and from the first node that is up: the adapter announces what its SDK doesn't, that it understands the refusal. Without that a node hangs up after three seconds, without a word.",
		},
		boundary.PublishOrderKey: {
			Declared: boundary.UntilFailure, Sources: []string{"RMQ-F-07", "RMQ-F-121"},
			Note: "Those behind a publish that was lost are in the queue before its retry. One message of a key at a time, as broker.NewBatcher(p, lanes, 1) does, keeps the order; a whole batch in flight doesn't.",
		},
		boundary.PublishCancel: {
			Declared: boundary.StaysUnknown, Sources: []string{"RMQ-F-02", "RMQ-F-08"},
			Note: "The message may be stored. Publish it again with the same ID; never with a new one. Either copy comes unmarked: dedup by ID.",
		},
		boundary.PublishRetryHorizon: {
			Declared: boundary.NotRetried, Sources: []string{"RMQ-F-01"},
			Note: "broker.Retry doesn't send again what had no answer, for no window makes that safe. With AllowCopies it does: the consumer needs a dedup store on the ID.",
		},
		boundary.PublishBackpressure: {
			Declared: boundary.StaysUnknown, Sources: []string{"RMQ-F-05", "RMQ-F-27", "RMQ-F-122"},
			Note: "One full queue with overflow reject-publish nacks what another queue of the exchange has stored: retry under the same ID, and dedup by it. On a topic /QUEUE the nack is ErrBusy, and nothing is stored. A node in alarm stops reading: Publish waits within its context, and what never left by then is ErrBusy.",
		},
		boundary.PublishPartialRoute: {
			Declared: boundary.UnknownStored, Documented: boundary.UnknownStored, Sources: []string{"RMQ-F-05", "RMQ-F-27", "RMQ-F-500"},
			Note: "A nack says that not every queue has it, and not which. Publish it again under the same ID once there is room; until then each attempt stores one more in the queues that aren't full, so their consumers need a dedup store on the ID. On a topic /QUEUE, which is one queue, a nack is a refusal: ErrBusy.",
		},
		boundary.PublishScheduled: {
			Declared: boundary.Unsupported, Sources: []string{"RMQ-F-28"},
			Note: "A queue whose messages expire into an exchange makes a delay, of one length for each queue. Or hold the message in an outbox until it is due.",
		},
		boundary.PublishRegion: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"RMQ-F-01"},
			Note: "There are no IDs to look for. Federation and shovels publish again, and can make copies of their own.",
		},
	}
}

// streamRefusals is the same for streams.
func streamRefusals() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.PublishAckReplicated: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"RMS-F-09", "RMS-F-121"},
			Note: "With three nodes: a majority of the replicas has it.",
		},
		boundary.PublishBatchAtomic: {
			Declared: boundary.InPart, Sources: []string{"RMS-F-03", "RMS-F-17"},
			Note: "Each message has its own confirm.",
		},
		boundary.PublishUnroutable: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"RMS-F-10", "RMS-F-15"},
			Note: "By the stream's retention: a reader begins where it wants.",
		},
		boundary.PublishOversize: {
			Declared: boundary.RefusedUnsent, Sources: []string{"RMS-F-17"},
			Note: "A message that no frame can hold isn't sent.",
		},
		boundary.PublishMissingEntity: {
			Declared: boundary.Refused, Sources: []string{"RMS-F-120"},
			Note: "ErrNotFound when the publisher is opened.",
		},
		boundary.PublishUnauthorized: {
			Declared: boundary.Refused, Sources: []string{"RMS-F-120"},
			Note: "ErrUnauthorized when the connection is opened.",
		},
		boundary.PublishOrderKey: {
			Declared: boundary.OverFailure, Sources: []string{"RMS-F-02", "RMS-F-17"},
			Note: "Nothing new leaves until the broker has said how far it got, as long as the publisher lives.",
		},
		boundary.PublishCancel: {
			Declared: boundary.StaysUnknown, Sources: []string{"RMS-F-01", "RMS-F-17"},
			Note: "The message may be stored. Publish it again with the same publisher and the same ID: it goes out under its old publishing ID.",
		},
		boundary.PublishRetryHorizon: {
			Declared: boundary.NotRetried, Sources: []string{"RMS-F-01"},
			Note: "broker.Retry doesn't send again what had no answer, for the stream remembers no ID of the application's. With AllowCopies it does, and as long as the publisher lives the broker drops the copy.",
		},
		boundary.PublishBackpressure: {
			Declared: boundary.Waits, Documented: boundary.Waits, Sources: []string{"RMQ-F-122"},
			Note: "A node in alarm stops reading: Publish waits within its context.",
		},
		boundary.PublishPartialRoute: {
			Declared: boundary.NotApplicable, Sources: []string{"RMS-F-10"},
			Note: "The readers of a stream share its log, and none has a bound of its own. A stream that is bound to an exchange beside queues is fed by AMQP: then what holds of queues holds.",
		},
		boundary.PublishScheduled: {
			Declared: boundary.Unsupported, Sources: []string{"RMS-F-10"},
			Note: "A stream has no time of delivery. Hold the message in an outbox until it is due.",
		},
		boundary.PublishRegion: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"RMS-F-01", "RMS-F-04"},
			Note: "A publisher's reference says nothing of the application's ID.",
		},
	}
}
