package kafka

import "github.com/onceline/onceline/broker/boundary"

// refusals is what publishers learn when something is in the way: refusals, failures
// in the middle, and what the broker hasn't got.
func refusals() map[boundary.Claim]boundary.Entry {
	return map[boundary.Claim]boundary.Entry{
		boundary.PublishAckReplicated: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"KAF-F-11", "KAF-F-126"},
			Note: "With three replicas and min.insync.replicas=2, which are the cluster's settings and not Ensure's. By the default of 1 the leader may answer alone, when the others have fallen behind.",
		},
		boundary.PublishBatchAtomic: {
			Declared: boundary.InPart, Documented: boundary.InPart, Sources: []string{"KAF-F-13", "KAF-F-14"},
			Note: "Kafka has transactions over several records; this adapter doesn't use them.",
		},
		boundary.PublishUnroutable: {
			Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"KAF-F-122"},
			Note: "By the topic's retention. A group that begins at the end, as Kafka's own default is, doesn't get it.",
		},
		boundary.PublishOversize: {
			Declared: boundary.RefusedUnsent, Documented: boundary.RefusedByBroker, Sources: []string{"KAF-F-12", "KAF-F-13"},
			Note: "The broker's limit is on a batch as it is compressed; the adapter's is on the body.",
		},
		boundary.PublishMissingEntity: {
			Declared: boundary.Refused, Sources: []string{"KAF-F-121"},
			Note: "ErrNotFound when the publisher is opened. Clients that allow it in their requests, as the Java producer does, make the topic where auto.create.topics.enable is on: switch it off.",
		},
		boundary.PublishUnauthorized: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"KAF-F-120"},
			Note: "ErrUnauthorized when the connection is opened.",
		},
		boundary.PublishOrderKey: {
			Declared: boundary.OverFailure, Documented: boundary.OverFailure, Sources: []string{"KAF-F-124"},
			Note: "Within a partition, so within a key, by the idempotent producer, as long as it lives. A new one knows nothing of what the last one had in flight.",
		},
		boundary.PublishCancel: {
			Declared: boundary.StaysUnknown, Sources: []string{"KAF-F-10", "KAF-F-24"},
			Note: "The record may be stored, or still be sent by the client. A retry of the same ID by the same publisher joins it.",
		},
		boundary.PublishRetryHorizon: {
			Declared: boundary.NotRetried, Sources: []string{"KAF-F-01", "KAF-F-10"},
			Note: "broker.Retry doesn't send again what had no answer, for Kafka remembers no ID. With AllowCopies it does, and as long as the publisher lives the retry joins the record in flight.",
		},
		boundary.PublishBackpressure: {
			Declared: boundary.Waits, Documented: boundary.Waits, Sources: []string{"KAF-F-123"},
			Note: "Publish waits within its context, and what never left by then is ErrBusy. A broker whose disk is full stops.",
		},
		boundary.PublishPartialRoute: {
			Declared: boundary.NotApplicable, Sources: []string{"KAF-F-122"},
			Note: "Groups read one log, which is written once: none of them can refuse. One that is behind for longer than the retention loses what it didn't read.",
		},
		boundary.PublishScheduled: {
			Declared: boundary.Unsupported, Documented: boundary.Unsupported, Sources: []string{"KAF-F-125"},
			Note: "Hold the message in an outbox until it is due.",
		},
		boundary.PublishRegion: {
			Declared: boundary.None, Documented: boundary.None, Sources: []string{"KAF-F-01"},
			Note: "There are no IDs to look for. What MirrorMaker copies are new records, with the ID in their headers.",
		},
	}
}
