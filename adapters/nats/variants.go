package nats

import "github.com/onceline/onceline/broker/boundary"

// BoundaryMemory is [Boundary] for streams in memory ([MemoryStorage]).
func BoundaryMemory() boundary.Boundary {
	b := Boundary()
	b.Of = "NATS JetStream 2.15, memory storage, one replica, limits retention"
	b.Entries[boundary.PublishAckDurable] = boundary.Entry{
		Declared: boundary.Lost, Sources: []string{"NATS-F-09"},
		Note: "The stream itself is gone once the server stops, and with it its messages, IDs and consumers: publishers get ErrUnroutable until somebody ensures it anew.",
	}
	b.Entries[boundary.PublishDedupBrokerRestart] = boundary.Entry{
		Declared: boundary.Lost, Sources: []string{"NATS-F-09"},
		Note: "After a restart there is neither the first message nor a stream for the second. An application that ensures the stream anew stores the second, whether the first was consumed or not.",
	}
	note(b, boundary.SettleFinal, "NATS-F-09", "A restart leaves nothing that could come again.")
	note(b, boundary.DeliverRedeliverAfterAck, "NATS-F-09", "A restart leaves nothing that could come again.")
	b.Entries[boundary.SettleDurable] = boundary.Entry{Declared: boundary.Final, Sources: []string{"NATS-F-09"},
		Note: "A crash leaves nothing that could come again, neither acked nor unacked."}
	b.Entries[boundary.PublishAckReplicated] = boundary.Entry{
		Declared: boundary.Lost, Sources: []string{"NATS-F-09"},
		Note: "With one replica the stream is gone for good with its server. Ask for three (the adapter's option Replicas).",
	}
	return b
}

// BoundaryWorkQueue is [Boundary] for streams with work-queue retention ([WorkQueue]).
func BoundaryWorkQueue() boundary.Boundary {
	b := Boundary()
	b.Of = "NATS JetStream 2.15, file storage, one replica, work-queue retention"
	forgetsAcked(b)
	return b
}

// BoundaryInterest is [Boundary] for streams with interest retention ([Interest]).
func BoundaryInterest() boundary.Boundary {
	b := Boundary()
	b.Of = "NATS JetStream 2.15, file storage, one replica, interest retention"
	forgetsAcked(b)
	b.Entries[boundary.PublishUnroutable] = boundary.Entry{
		Declared: boundary.Lost, Documented: boundary.Lost, Sources: []string{"NATS-F-42"},
		Note: "The receipt is Stored, with a sequence. Ensure the subscription before the first publish.",
	}
	note(b, boundary.PublishAckDurable, "NATS-F-42", "For the subscriptions that exist by then: without one the receipt is Stored, and the message is gone at once. Over a power cut as in the note on file storage.")
	return b
}

// forgetsAcked is what holds where an acked message is removed.
func forgetsAcked(b boundary.Boundary) {
	note(b, boundary.PublishDedupBrokerRestart, "NATS-F-07", "Once, as long as the first message is still stored. The ID of one that was acked is forgotten at the restart, and a retry after it makes a second message.")
	note(b, boundary.PublishDedupAfterConsume, "NATS-F-07", "Until the server restarts; then the ID of a message that was acked is forgotten. A new message under an old ID is swallowed: the receipt says Duplicate, which a producer must not take for Stored.")
	note(b, boundary.SettleFinal, "NATS-F-41", "The ack removes the message, so that not even SIGKILL right after it brought one back.")
	note(b, boundary.DeliverRedeliverAfterAck, "NATS-F-41", "The ack removes the message, so that not even SIGKILL right after it brought one back.")
	b.Entries[boundary.SettleDurable] = boundary.Entry{Declared: boundary.Final, Sources: []string{"NATS-F-41"},
		Note: "The ack removes the message, and that is written at once."}
}

// BoundaryReplicated is [Boundary] for streams in files on three servers ([Replicas]).
func BoundaryReplicated() boundary.Boundary {
	b := Boundary()
	b.Of = "NATS JetStream 2.15, file storage, three servers, three replicas, limits retention"
	b.Entries[boundary.PublishAckReplicated] = boundary.Entry{
		Declared: boundary.Kept, Documented: boundary.Kept, Sources: []string{"NATS-F-12", "NATS-F-126"},
		Note: "A majority has it. Nobody answers while the next leader is elected, for some seconds.",
	}
	note(b, boundary.PublishAckDurable, "NATS-F-12", "Kept over a kill of all three processes at once. Over a power cut of all three only with sync_interval: always.")
	note(b, boundary.PublishDedupBrokerRestart, "NATS-F-08", "All three restarted at once. IDs of messages that are gone may be forgotten as soon as a server leads that was restarted since.")
	note(b, boundary.DeliverCancel, "NATS-F-48", "At once where it came to a Receive that was cancelled, which costs an attempt. A pull can't be taken back from a consumer on another server: it may get messages for up to half a second after its Receive was cancelled, and Close waits for that.")
	b.Entries[boundary.SettleDurable] = boundary.Entry{Declared: boundary.Final, Sources: []string{"NATS-F-43"},
		Note: "The state of a consumer with three replicas is in their logs. All three killed at once, as often as it was tried."}
	note(b, boundary.SettleFinal, "NATS-F-43", "Also over SIGKILL of all three processes right after it, as often as it was tried.")
	note(b, boundary.DeliverRedeliverAfterAck, "NATS-F-43", "Also over SIGKILL of all three processes right after it, as often as it was tried.")
	return b
}

// note replaces what is said beside a claim's answer, and its source.
func note(b boundary.Boundary, claim boundary.Claim, source, text string) {
	e := b.Entries[claim]
	e.Note = text
	e.Sources = []string{source}
	b.Entries[claim] = e
}
