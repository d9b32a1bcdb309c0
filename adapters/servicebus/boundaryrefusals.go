package servicebus

import "github.com/onceline/onceline/broker/boundary"

// refusals is what publishers learn when something is in the way: refusals, failures
// in the middle, and what the broker hasn't got.
func refusals() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.PublishAckReplicated: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"SB-F-12", "SB-F-29"},
			Note: "Within the region. To another one premium replicates in step or behind.",
		},
		boundary.PublishBatchAtomic: {
			Declared: boundary.InPart, Sources: []string{"SB-F-10"},
			Note: "The service takes or refuses a batch as one; the adapter sends a refused one again in halves, so that one bad message harms no other.",
		},
		boundary.PublishUnroutable: {
			Declared: boundary.Kept, Sources: []string{"SB-F-12", "SB-F-123"},
			Note: "Of a queue, which is topic and subscription in one. A topic without a subscription accepts what nobody will ever get.",
		},
		boundary.PublishOversize: {
			Declared: boundary.RefusedUnsent, Documented: boundary.RefusedByBroker, Sources: []string{"SB-F-10", "SB-F-11"},
			Note: "Limits().Body says what fits beside the properties.",
		},
		boundary.PublishMissingEntity: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"SB-F-120"},
			Note: "ErrNotFound when the publisher is opened.",
		},
		boundary.PublishUnauthorized: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"SB-F-120"},
			Note: "When a publisher is opened: a connection without links shows no credentials.",
		},
		boundary.PublishOrderKey: {
			Declared: boundary.OverFailure, Sources: []string{"SB-F-10", "SB-F-23"},
			Note: "The messages of one Publish go in one batch after the other, each when the one before it has its answer.",
		},
		boundary.PublishCancel: {
			Declared: boundary.StaysUnknown, Sources: []string{"SB-F-01", "SB-F-50"},
			Note: "The message may be stored. Publish it again with the same ID; never with a new one.",
		},
		boundary.PublishRetryHorizon: {
			Declared: boundary.WindowExceeded, Sources: []string{"SB-F-02", "SB-F-03"},
			Note: "broker.Retry ends each attempt before the window does, counted from Message.Time, and then says Unknown with ErrWindowExceeded. Keep Time over a restart of the producer, or the guard counts from there.",
		},
		boundary.PublishBackpressure: {
			Declared: boundary.PushedBack, Documented: boundary.PushedBack, Sources: []string{"SB-F-121"},
			Note: "ErrBusy, and nothing of the request is stored. broker.Retry backs off.",
		},
		boundary.PublishPartialRoute: {
			Declared: boundary.NotApplicable, Sources: []string{"SB-F-500"},
			Note: "The size is limited of a queue or of a topic with all of its subscriptions: one that nobody reads fills the topic, which then refuses for all.",
		},
		boundary.PublishScheduled: {
			Declared: boundary.Scheduled, Documented: boundary.Scheduled, Sources: []string{"SB-F-07", "SB-F-28", "SB-F-122"},
			Note: "The contract has no word for it; by the SDK's own message. A scheduled message takes part in duplicate detection: give a copy for later a Copy.",
		},
		boundary.PublishRegion: {
			Declared: boundary.OneRegion, Sources: []string{"SB-F-01", "SB-F-29"},
			Note: "A namespace has one primary region, whose entities hold the IDs. A forced failover with asynchronous replication can lose them.",
		},
	}
}
