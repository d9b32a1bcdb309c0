package conformance

import (
	"context"
	"errors"
	"slices"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/broker/driver"
)

// AllMutants returns those of [Mutants] and those that break the adapter of one target.
func AllMutants() []Mutant { return slices.Concat(Mutants(), brokerMutants()) }

// MutantsOf returns those that break the adapter of the target of that name in a way
// that its broker invites. The suite knows no adapter: each is one that a wrapper of
// package driver's interfaces can make of it.
func MutantsOf(target string) []Mutant {
	var of []Mutant
	for _, m := range brokerMutants() {
		if m.On == target {
			of = append(of, m)
		}
	}
	return of
}

func brokerMutants() []Mutant {
	return append(txnMutantsOf(), []Mutant{
		{"deletes-on-receipt", "sqs-standard", receiving, "It deletes a message as soon as it has received it.",
			boundary.EffectCrashBefore, boundary.Lost, ackBefore()},
		{"deletes-by-message-id", "sqs-standard", settling, "It keeps the receipt handle under the message's ID, and a late delete uses the new holder's.",
			boundary.SettleStale, boundary.TakesEffect, settleByID()},
		{"hands-out-last-first", "sqs-fifo", receiving, "It keeps what a batch of ReceiveMessage brought in a stack.",
			boundary.DeliverOrderKey, boundary.None, mutation{receive: lastFirst()}},
		{"ignores-failed-entries", "sqs-fifo", publishing, "It takes a SendMessageBatch that was answered 200 for stored, and doesn't read the list of failed entries.",
			boundary.PublishBatchPartial, boundary.Smeared, mutation{publish: believeStatus}},
		{"takes-a-403-for-an-outage", "sqs-fifo", publishing, "It says that the broker is down where it refuses the signature.",
			boundary.PublishUnauthorized, boundary.RefusedOtherwise, mutation{openPublisher: hideErrors, publish: downInstead}},
		{"ignores-failed-deletes", "sqs-fifo", settling, "It takes a DeleteMessageBatch that was answered 200 for done, also where an entry failed because its receipt handle has expired.",
			boundary.VendorSettleStale, boundary.ClaimedDone, mutation{settle: lostAsDone}},
		{"calls-an-ack-confirmed", "pubsub", settling, "It says Confirmed of an ack that the service doesn't answer for, outside exactly-once delivery.",
			boundary.SettleAnswer, boundary.Confirmed, mutation{settle: stateInstead(broker.Sent, broker.Confirmed)}},
		{"swallows-the-ack-answer", "pubsub-exactly-once", settling, "It acks without looking at the result that exactly-once delivery gives for each ack ID.",
			boundary.VendorSettleStale, boundary.ClaimedDone, mutation{settle: swallowErrors}},
		{"publishes-without-ordering-key", "pubsub-exactly-once-ordered", publishing, "It carries the key in an attribute of its own, and leaves the ordering key empty.",
			boundary.DeliverOrderKey, boundary.UntilNack, mutation{publish: keyAside, receive: keyBack}},
		{"receives-and-deletes", "servicebus-queue", receiving, "It receives in the mode that deletes on delivery.",
			boundary.EffectCrashBefore, boundary.Lost, ackBefore()},
		{"completes-by-the-newest-lock", "servicebus-queue", settling, "It keeps the lock token under the message's ID: a late Complete is done with the new holder's lock.",
			boundary.VendorSettleStale, boundary.TakesEffect, settleByID()},
		{"renews-the-message-lock", "servicebus-sessions", settling, "It renews the lock of a message, where the session holds the lock.",
			boundary.DeliverLeaseExtend, boundary.Ignored, mutation{settle: extendNothing}},
		{"takes-a-returned-message-for-stored", "rabbitmq-quorum", publishing, "It reads the confirm of a message and not the basic.return before it.",
			boundary.PublishUnroutable, boundary.Lost, mutation{publish: believeConfirm}},
		{"takes-a-nack-for-refused", "rabbitmq-classic", publishing, "It says Refused of a basic.nack, which one full queue is enough for, whatever the other queues have stored.",
			boundary.PublishPartialRoute, boundary.ClaimedRefused, mutation{publish: nackRefuses}},
		{"publishes-without-confirms", "rabbitmq-quorum", publishing, "It says Stored as soon as the frame is written.",
			boundary.PublishHalfOpen, boundary.Guessed, mutation{publish: publishUnseen}},
		{"acks-with-multiple", "rabbitmq-classic", settling, "It sets multiple in an ack, which then covers every lower delivery tag of the channel.",
			boundary.DeliverClose, boundary.Never, ackMultiple()},
		{"acks-by-tag-alone", "rabbitmq-classic", settling, "It keeps the delivery tag and not the channel: after a reconnect the tag is another delivery's.",
			boundary.SettleAfterReconnect, boundary.ClaimedDone, settleByTag()},
		{"consumes-with-no-ack", "rabbitmq-classic", receiving, "It consumes with no-ack, so that a message is settled as it is sent.",
			boundary.DeliverClose, boundary.Never, ackBefore()},
		{"ignores-the-start-offset", "rabbitmq-stream", receiving, "It resumes from the stored offset, whatever offset its caller asks for.",
			boundary.EffectRewind, boundary.Once, mutation{receiverOptions: ignoreStart}},
		{"acks-without-waiting", "nats", settling, "It sends +ACK without asking for an answer, and says Confirmed.",
			boundary.SettleLostRequest, boundary.ClaimedDone, mutation{settle: settleUnseen}},
		{"confirms-in-silence", "nats", settling, "It says Confirmed where the context ended before an answer came.",
			boundary.SettleHalfOpen, boundary.Guessed, mutation{settle: confirmAtEnd}},
		{"drops-late-messages", "kafka-share", receiving, "It drops what a pull brings when the call that asked for it has ended.",
			boundary.DeliverSlow, boundary.Stuck, mutation{receive: strand()}},
		{"ignores-the-duplicate-flag", "nats", publishing, "It doesn't read duplicate in the PubAck.",
			boundary.PublishDedupVerdict, boundary.Accepted, mutation{publish: hideDuplicates}},
		{"pulls-without-a-deadline", "nats", receiving, "Its pull doesn't end with the caller's context.",
			boundary.DeliverHalfOpen, boundary.Stuck, mutation{receive: hearNothing}},
		{"commits-past-the-unsettled", "kafka-group", settling, "It commits the offset behind the record that was acked, past lower ones that aren't.",
			boundary.DeliverClose, boundary.Never, ackMultiple()},
		{"commits-as-it-polls", "kafka-group", receiving, "It commits the position of its last poll as it closes, as auto-commit does.",
			boundary.DeliverClose, boundary.Never, ackOnClose()},
		{"takes-a-lost-partition-for-done", "kafka-group", settling, "It says Confirmed where the group's generation has moved on.",
			boundary.FenceRebalance, boundary.ClaimedDone, keepOpen()},
		{"acknowledges-with-the-next-poll", "kafka-share", receiving, "It polls in implicit mode, which accepts all that the poll before brought.",
			boundary.SettleAfterReconnect, boundary.ClaimedLost, ackOnPoll()},
		{"publishes-with-acks-0", "kafka-share", publishing, "It produces with acks=0, and says Stored as the request has left.",
			boundary.PublishHalfOpen, boundary.Guessed, mutation{publish: publishUnseen}},
	}...)
}

// downInstead says of a publish that its credentials kept out that the broker is down.
func downInstead(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
	next.Publish(ctx, ms, rs)
	for i := range rs {
		if errors.Is(rs[i].Err, broker.ErrUnauthorized) {
			rs[i].Err = broker.Errorf(broker.ErrUnavailable, nil, "publish %q", ms[i].ID)
		}
	}
}

// believeConfirm says Stored of what was returned as unroutable.
func believeConfirm(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
	next.Publish(ctx, ms, rs)
	for i := range rs {
		if errors.Is(rs[i].Err, broker.ErrUnroutable) {
			rs[i] = broker.Receipt{Verdict: broker.Stored}
		}
	}
}

// nackRefuses says Refused of what the broker didn't confirm. What is still open when the
// context ends had no answer, and stays Unknown.
func nackRefuses(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
	next.Publish(ctx, ms, rs)
	for i := range rs {
		if rs[i].Verdict == broker.Unknown && ctx.Err() == nil {
			rs[i] = broker.Receipt{Verdict: broker.Refused, Err: broker.Errorf(broker.ErrBusy, nil, "publish %q: nacked", ms[i].ID)}
		}
	}
}

// besideKey carries a message's key where it isn't the ordering key.
const besideKey = "app-key"

// keyAside publishes keys as a header alone.
func keyAside(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
	changing(func(m *broker.Message) {
		m.Headers = append(slices.Clone(m.Headers), broker.Header{Key: besideKey, Value: m.Key})
		m.Key = ""
	})(ctx, next, ms, rs)
}

// keyBack takes keys from where keyAside put them.
func keyBack(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
	err := next.Receive(ctx, max, out)
	for i := range out.Len() {
		d := out.At(i)
		if last := len(d.Headers) - 1; last >= 0 && d.Headers[last].Key == besideKey {
			d.Key, d.Headers = d.Headers[last].Value, d.Headers[:last]
		}
	}
	return err
}
