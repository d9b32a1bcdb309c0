package targets

import (
	"context"
	"time"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack"
)

// The times that the suite asks of servers of the SQS API whose time is real. Shorter
// leases are had, and a busy machine would miss them.
const (
	sqsServerLease    = 6 * time.Second
	sqsServerPatience = 2 * time.Second
)

// localSQS returns the targets on servers of the SQS API by others than AWS, whose
// answers are second opinions and never AWS's.
func localSQS(p Progress) []conformance.Target {
	var ts []conformance.Target
	for _, by := range []struct {
		name  string
		start func(context.Context, ...localstack.ServerOption) (*localstack.Server, error)
	}{{"elasticmq", localstack.StartElasticMQ}, {"moto", localstack.StartMoto}, {"localstack", localstack.StartLocalStack}} {
		one := &sharedServer[*localstack.Server]{name: by.name, start: func(ctx context.Context) (*localstack.Server, error) {
			return by.start(ctx, p.For(by.name))
		}}
		ts = append(ts, sqsServer(one, sqsStandardTarget(), ""), sqsServer(one, sqsFIFOTarget(), ".fifo"))
	}
	return ts
}

// sqsServer completes a target on a server of the SQS API. The window of five minutes
// can't be set, and is too long to be waited for.
func sqsServer(by *sharedServer[*localstack.Server], t conformance.Target, suffix string) conformance.Target {
	t.Like, t.Name = t.Name, by.name+t.Name[len("sqs"):]
	t.Kind, t.WishLease, t.Lease, t.Window, t.Patience = report.KindLocal, true, sqsServerLease, 0, sqsServerPatience
	t.Deviations = sqsDeviations[t.Name]
	// Ten thousand take LocalStack half a minute of a processor, and moto and ElasticMQ's
	// FIFO queues a minute for a thousand.
	t.Soak, t.Long = 1000, by.name == "localstack"
	if !t.Long {
		t.Soak, t.ProbeWithin = 200, 2*time.Minute
	}
	return by.runs(t, func(_ context.Context, e *localstack.Server) (*conformance.Instance, error) {
		i := network(e, "")
		i.Entity = oneName(suffix)
		return i, nil
	})
}

// sqsDeviations are the differences from what is declared of AWS, by target. What
// holds of AWS is known from its documentation and from the answers that LocalStack's
// own tests have recorded of it; none of it was measured here.
var sqsDeviations = map[string][]conformance.Deviation{
	"elasticmq-standard": {
		{Claim: boundary.DeliverRedeliverNack, Answer: boundary.Behind,
			Reason: "ElasticMQ 1.7.1 delivers what is given back behind all that waits. Of a standard queue AWS documents no order at all, so that this is as good as any place; declared is that it comes at once."},
		elasticMQSecondDelete, elasticMQCancelledDelete,
		{Claim: boundary.VendorSettleForeign, Answer: boundary.Kept,
			Reason: "ElasticMQ 1.7.1 takes no handle but that of the last receive, so the holder's delivery stays its own. Of a standard queue AWS documents that a delete by an older handle succeeds and may or may not delete the message. AWS's words hold, unmeasured; declared is the weaker of the two."},
		{Claim: boundary.VendorSettleStale, Answer: boundary.Refused,
			Reason: "ElasticMQ 1.7.1 takes no handle but that of the last receive. Of a standard queue AWS documents that a delete by an older handle succeeds and may or may not delete the message. AWS's words hold, unmeasured; declared is the weaker of the two."},
	},
	"elasticmq-fifo": {elasticMQSecondDelete, elasticMQCancelledDelete},
	"moto-standard":  inMemory("moto 5.2.5", boundary.Twice),
	"moto-fifo": append(inMemory("moto 5.2.5", boundary.Once),
		conformance.Deviation{Claim: boundary.PublishDedupAfterConsume, Answer: boundary.Twice,
			Reason: "moto 5.2.5 compares an ID with those of the messages that are still in the queue. AWS documents that the ID is remembered for five minutes also when the message was received and deleted, and LocalStack's tests recorded that of it. AWS's words hold."},
		conformance.Deviation{Claim: boundary.PipelineCrossBroker, Answer: boundary.Twice,
			Reason: "moto 5.2.5 forgets the ID of a message that was received and deleted, so that what a relay sends again once its output was read is there twice. AWS documents that the ID is remembered for five minutes. AWS's words hold."},
		conformance.Deviation{Claim: boundary.VendorSettleForeign, Answer: boundary.TakenTold,
			Reason: "moto 5.2.5 deletes by any handle that the message ever had, so a late one takes it from its holder. AWS documents that a FIFO queue refuses a handle whose visibility timeout has passed. AWS's words hold."},
		conformance.Deviation{Claim: boundary.VendorSettleStale, Answer: boundary.TakesEffect,
			Reason: "moto 5.2.5 deletes by any handle that the message ever had. AWS documents that a FIFO queue refuses a handle whose visibility timeout has passed, and LocalStack's tests recorded that of it, for a message that waits. AWS's words hold."},
	),
	"localstack-standard": inMemory("LocalStack 4.13.1", boundary.Twice),
	"localstack-fifo": append(inMemory("LocalStack 4.13.1", boundary.Once),
		conformance.Deviation{Claim: boundary.VendorSettleForeign, Answer: boundary.TakenTold,
			Reason: "LocalStack 4.13.1 takes an expired handle as soon as the message is handed out to somebody else, and takes the message from that one. AWS documents that a FIFO queue refuses a handle whose visibility timeout has passed, without that exception. AWS's words hold; its answer in this very case is not recorded."},
		conformance.Deviation{Claim: boundary.VendorSettleStale, Answer: boundary.TakesEffect,
			Reason: "LocalStack 4.13.1 refuses an expired handle while the message waits, and takes it as soon as the message is handed out to somebody else. AWS documents that a FIFO queue refuses a handle whose visibility timeout has passed, without that exception. AWS's words hold; its answer in this very case is not recorded."},
	),
}

var elasticMQSecondDelete = conformance.Deviation{Claim: boundary.SettleLostResponse, Answer: boundary.StaysUnknown,
	Reason: "ElasticMQ 1.7.1 forgets a handle with its message, so a repeated delete is ReceiptHandleIsInvalid, and nobody can tell whether the first one was applied. AWS answers a repeated delete with success: LocalStack's tests recorded that of a standard queue. What AWS answers holds."}

var elasticMQCancelledDelete = conformance.Deviation{Claim: boundary.SettleCancel, Answer: boundary.StaysUnknown,
	Reason: "As with a lost answer: ElasticMQ 1.7.1 forgets a handle with its message, so the delete that is asked for again tells nothing. What AWS answers holds, which is success."}

// inMemory is where a server that keeps nothing over its end differs, from a service
// that stores a retry after a restart so many times.
func inMemory(who string, times boundary.Answer) []conformance.Deviation {
	dedup := map[boundary.Answer]string{
		boundary.Once:  "remembers the ID, and the retry is swallowed",
		boundary.Twice: "has no dedup here, and both are stored",
	}[times]
	return []conformance.Deviation{
		{Claim: boundary.PublishAckDurable, Answer: boundary.Lost,
			Reason: who + " keeps queues and messages in memory alone and starts empty. AWS documents that a message is stored in several places before the answer, and can't be killed from outside. AWS's words hold, unmeasured."},
		{Claim: boundary.PublishDedupBrokerRestart, Answer: boundary.Lost,
			Reason: who + " starts without the queue, so the first message is gone and the retry has nowhere to go. AWS, by its documentation, " + dedup + ". AWS's words hold, unmeasured."},
	}
}
