package targets

import (
	"context"
	"time"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack"
)

// localPubSub returns the targets on Google's own emulator.
func localPubSub(p Progress) []conformance.Target {
	const name = "pubsub-emulator"
	one := &sharedServer[*localstack.Server]{name: name, start: func(ctx context.Context) (*localstack.Server, error) {
		return localstack.StartPubSubEmulator(ctx, p.For(name))
	}}
	return []conformance.Target{
		pubsubEmulator(one, pubsubTarget(), "", lateAck, keptByHolder),
		pubsubEmulator(one, pubsubExactlyOnceTarget(), "?exactly-once=true"),
		pubsubEmulatorOrdered(one),
	}
}

// forgets is where the emulator differs from the service in every configuration.
var forgets = []conformance.Deviation{
	{Claim: boundary.PublishAckDurable, Answer: boundary.Lost,
		Reason: "Emulator 0.8.20 keeps topics, subscriptions and messages in memory alone and starts empty. Of the service the documentation holds, which says that it stores them; unmeasured, for nobody outside can kill it."},
	{Claim: boundary.PublishDedupBrokerRestart, Answer: boundary.Lost,
		Reason: "Emulator 0.8.20 starts without the topic, so the first message is gone and the second has nowhere to go. Of the service the documentation holds, unmeasured: it has no dedup, and both are stored."},
}

// nackedBehind is where it puts what is given back.
var nackedBehind = conformance.Deviation{Claim: boundary.DeliverRedeliverNack, Answer: boundary.Behind,
	Reason: "Of emulator 0.8.20 what was nacked without a delay came behind all that waited, with ordering also behind later messages of its key (PS-F-142). The service's documentation names no place without ordering, and with it promises the order of a key over redelivery. Its words hold, unmeasured."}

// lateAck is where it differs without exactly-once delivery.
var lateAck = conformance.Deviation{Claim: boundary.VendorSettleStale, Answer: boundary.Refused,
	Reason: "Emulator 0.8.20 answers OK and ignores the late ack once the message was handed out again. The service's documentation says that such an ack may succeed and that the message may come again all the same: either is right, and declared is the weaker of the two, unmeasured."}

// keptByHolder is the same from the other side.
var keptByHolder = conformance.Deviation{Claim: boundary.VendorSettleForeign, Answer: boundary.Kept,
	Reason: "Emulator 0.8.20 ignores the late ack once the message was handed out again, so that delivery stays its holder's. The service's documentation says that such an ack may succeed: declared is the weaker, unmeasured."}

// pubsubEmulator completes a target on the emulator of the Google Cloud CLI. It is
// Google's, and it is not the service: what is observed is the emulator's.
func pubsubEmulator(one *sharedServer[*localstack.Server], t conformance.Target, query string, deviations ...conformance.Deviation) conformance.Target {
	t.Deviations = append(append(deviations, forgets...), nackedBehind)
	t.Like, t.Name = t.Name, one.name+t.Name[len("pubsub"):]
	t.Kind, t.WishLease, t.Patience = report.KindLocal, true, 2*time.Second
	return one.runs(t, func(_ context.Context, e *localstack.Server) (*conformance.Instance, error) {
		i := network(e, query)
		i.Entity = oneName("")
		return i, nil
	})
}

func pubsubEmulatorOrdered(one *sharedServer[*localstack.Server]) conformance.Target {
	t := pubsubEmulator(one, pubsubOrderedTarget(), "?exactly-once=true")
	start := t.Start
	t.Start = func(ctx context.Context) (*conformance.Instance, error) {
		i, err := start(ctx)
		if err == nil {
			i.Entity = ordered
			i.Purge = nil // it can't seek where there is order (PS-F-100)
		}
		return i, err
	}
	return t
}
