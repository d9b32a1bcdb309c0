package memory

import "github.com/onceline/onceline/broker/boundary"

// refusals is what publishers learn when something is in the way: refusals, failures
// in the middle, and what the broker hasn't got.
func refusals() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.PublishAckReplicated: {
			Declared: boundary.NotApplicable,
			Note:     "One process: there are no replicas, and it has no disk either.",
		},
		boundary.PublishBatchAtomic: {
			Declared: boundary.InPart,
			Note:     "A batch is no transaction: each message has its own verdict.",
		},
		boundary.PublishUnroutable: {
			Declared: boundary.Kept,
			Note:     "The first subscription gets what came before it; later ones don't.",
		},
		boundary.PublishOversize: {
			Declared: boundary.RefusedUnsent,
			Note:     "Limits().Body says what fits.",
		},
		boundary.PublishMissingEntity: {
			Declared: boundary.Refused,
			Note:     "ErrNotFound when the publisher is opened. Ensure makes topics, and nothing else does.",
		},
		boundary.PublishUnauthorized: {
			Declared: boundary.NotApplicable,
			Note:     "There are no credentials.",
		},
		boundary.PublishOrderKey: {
			Declared: boundary.OverFailure,
			Note:     "The messages of one Publish are one request, which is lost or stored as a whole. Of two calls at a time the order is open.",
		},
		boundary.PublishCancel: {
			Declared: boundary.StaysUnknown,
			Note:     "The message may be stored. Publish it again with the same ID; never with a new one.",
		},
		boundary.PublishRetryHorizon: {
			Declared: boundary.WindowExceeded,
			Note:     "broker.Retry ends each attempt before the window does, counted from Message.Time, and then says Unknown with ErrWindowExceeded. Keep Time over a restart of the producer, or the guard counts from there.",
		},
		boundary.PublishBackpressure: {
			Declared: boundary.PushedBack,
			Note:     "Only an injected fault does it: the broker has room as long as the process has.",
		},
		boundary.PublishPartialRoute: {
			Declared: boundary.NotApplicable,
			Note:     "A subscription has no bound of its own: it has room as long as the process has.",
		},
		boundary.PublishScheduled: {
			Declared: boundary.Unsupported,
			Note:     "Hold the message in an outbox until it is due.",
		},
		boundary.PublishRegion: {
			Declared: boundary.NotApplicable,
			Note:     "One process is one region.",
		},
	}
}
