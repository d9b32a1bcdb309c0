package pubsub

import "github.com/onceline/onceline/broker/boundary"

// refusals is what publishers learn when something is in the way: refusals, failures
// in the middle, and what the broker hasn't got.
func refusals() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.PublishAckReplicated: {Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"PS-F-06"}},
		boundary.PublishBatchAtomic: {
			Declared: boundary.InPart, Sources: []string{"PS-F-05", "PS-F-23"},
			Note: "A request is stored or refused as a whole, and a Publish may be several of them.",
		},
		boundary.PublishUnroutable: {
			Declared: boundary.Lost, Documented: boundary.Lost, Sources: []string{"PS-F-120"},
			Note: "Ensure the subscription before the first publish, or give the topic a retention of its own and seek.",
		},
		boundary.PublishOversize: {Declared: boundary.RefusedUnsent, Documented: boundary.RefusedByBroker, Sources: []string{"PS-F-05"}},
		boundary.PublishMissingEntity: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"PS-F-121"},
			Note: "ErrNotFound when the publisher is opened.",
		},
		boundary.PublishUnauthorized: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"PS-F-121"},
			Note: "ErrUnauthorized at the first call. Who may publish and not look at topics opens a publisher all the same.",
		},
		boundary.PublishOrderKey: {
			Declared: boundary.OverFailure, Sources: []string{"PS-F-20", "PS-F-23"},
			Note: "The adapter sends the next request of a key when the one before it has its answer, and nothing behind one that failed. Publishers of a key must be in one region.",
		},
		boundary.PublishCancel: {
			Declared: boundary.StaysUnknown, Sources: []string{"PS-F-01", "PS-F-03"},
			Note: "The message may be stored. Publish it again with the same ID; never with a new one. The service doesn't dedup it: a store at the consumer has to.",
		},
		boundary.PublishRetryHorizon: {
			Declared: boundary.NotRetried, Sources: []string{"PS-F-01"},
			Note: "broker.Retry doesn't send again what had no answer, for no window makes that safe. With AllowCopies it does: the consumer needs a dedup store on the ID.",
		},
		boundary.PublishBackpressure: {
			Declared: boundary.PushedBack, Documented: boundary.PushedBack, Sources: []string{"PS-F-121"},
			Note: "ErrBusy, and nothing of the request is stored. broker.Retry backs off.",
		},
		boundary.PublishPartialRoute: {
			Declared: boundary.NotApplicable, Sources: []string{"PS-F-24"},
			Note: "A subscription has no bound of its own: it keeps what isn't acked for its retention, and drops it then.",
		},
		boundary.PublishScheduled: {
			Declared: boundary.Unsupported, Documented: boundary.Unsupported, Sources: []string{"PS-F-122"},
			Note: "Hold the message in an outbox, or in Cloud Tasks, until it is due.",
		},
		boundary.PublishRegion: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"PS-F-01", "PS-F-02"},
			Note: "A topic is global, and has no dedup anywhere.",
		},
	}
}
