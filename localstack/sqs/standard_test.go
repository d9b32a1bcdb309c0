package sqs_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceline/onceline/localstack/sqs"
)

// The whole way over TCP, with what JSON must escape.
func TestLifeOfAMessage(t *testing.T) {
	w := onLoopback(t)
	url := w.queue("orders")
	const body = "\"wörld\" \\ \n\t𝄞 </script> \u2028"
	sent := w.send(url, body)
	got := w.receive(url, 10)
	w.want("bodies", bodies(got), []string{body})
	w.want("id", *got[0].MessageId, *sent.MessageId)
	w.want("counts", w.counts(url), [3]string{"0", "1", "0"})
	w.must(w.delete(url, got[0]))
	w.want("counts", w.counts(url), [3]string{"0", "0", "0"})
}

// SQS-F-21, SQS-F-24: what a standard queue calls a success.
func TestStandardHandles(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		w.send(url, "1")
		m := w.receive(url, 1, lease(time.Second))[0]
		time.Sleep(2 * time.Second)
		w.must(w.delete(url, m)) // the lease was over: deleted nevertheless
		w.want("gone", w.counts(url), [3]string{"0", "0", "0"})
		w.must(w.delete(url, m))
		w.wantCode(w.change(url, m, time.Second), "InvalidParameterValue") // SQS-F-20

		other := w.queue("other")
		for _, h := range []string{"garbage", "", "AQEB" + strings.Repeat("A", 44), *m.ReceiptHandle + "x"} {
			w.wantCode(w.delete(url, types.Message{ReceiptHandle: aws.String(h)}), "ReceiptHandleIsInvalid")
		}
		w.wantCode(w.delete(other, m), "ReceiptHandleIsInvalid")
	})
}

// SQS-F-23, SQS-F-57: an older handle.
func TestStaleHandle(t *testing.T) {
	for _, ignored := range []bool{false, true} {
		var options []sqs.Option
		if ignored {
			options = append(options, sqs.IgnoreStaleDeletes())
		}
		inBubble(t, func(w world) {
			url := w.queue("q")
			w.send(url, "1")
			old := w.receive(url, 1, lease(time.Second))[0]
			time.Sleep(2 * time.Second)
			w.receive(url, 1, lease(time.Minute))
			w.must(w.change(url, old, 0))
			w.want("the old handle changes the lease", bodies(w.receive(url, 1)), []string{"1"})
			w.must(w.delete(url, old))
			time.Sleep(time.Hour)
			w.want("left over", len(w.receive(url, 1)), map[bool]int{false: 0, true: 1}[ignored])
		}, options...)
	}
}

// SQS-F-18, SQS-F-73: twelve hours count from the receive, and a request past them
// is refused and not clipped.
func TestLongestLease(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		w.send(url, "1")
		m := w.receive(url, 1, lease(time.Minute))[0]
		w.must(w.change(url, m, 12*time.Hour))
		time.Sleep(5 * time.Second)
		err := w.change(url, m, 12*time.Hour)
		w.wantCode(err, "InvalidParameterValue")
		w.want("reason", strings.Contains(err.Error(), "beyond the limit [43200 seconds]"), true)
		w.must(w.change(url, m, 12*time.Hour-5*time.Second))
		w.wantCode(w.change(url, m, 12*time.Hour+time.Second), "InvalidParameterValue")
		time.Sleep(12*time.Hour - 6*time.Second)
		w.want("still hidden", bodies(w.receive(url, 1)), []string{})
		time.Sleep(time.Second)
		w.want("shown", bodies(w.receive(url, 1)), []string{"1"})
	})
}

// SQS-F-40, SQS-F-33, SQS-F-19
func TestNackAndExtend(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		w.send(url, "1")
		count := func(m types.Message) string { return m.Attributes["ApproximateReceiveCount"] }
		m := w.receive(url, 1)[0]
		w.want("count", count(m), "1")
		w.must(w.change(url, m, 0))
		m = w.receive(url, 1)[0]
		w.want("count after a nack", count(m), "2")
		w.must(w.change(url, m, 10*time.Second))
		time.Sleep(9 * time.Second)
		w.want("delayed nack", bodies(w.receive(url, 1)), []string{})
		time.Sleep(time.Second)
		m = w.receive(url, 1, lease(time.Second))[0]
		w.want("count after the delay", count(m), "3")
		time.Sleep(2 * time.Second)
		w.must(w.change(url, m, time.Minute)) // of a message whose lease is over
		w.want("hidden again", w.counts(url), [3]string{"0", "1", "0"})
	})
}

// What comes back takes its old place, as was recorded of the service.
func TestRedeliveredFirst(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		w.send(url, "1")
		w.receive(url, 1, lease(3*time.Second))
		w.send(url, "2")
		time.Sleep(3 * time.Second)
		w.want("order", bodies(w.receive(url, 10)), []string{"1", "2"})
	})
}

// SQS-F-16, SQS-F-17, SQS-F-70
func TestDelayAndRetention(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q", "DelaySeconds", "10", "MessageRetentionPeriod", "60")
		w.send(url, "queue's")
		w.send(url, "own", func(m *sdk.SendMessageInput) { m.DelaySeconds = 20 })
		_, err := w.trySend(url, "too long", func(m *sdk.SendMessageInput) { m.DelaySeconds = 901 })
		w.wantCode(err, "InvalidParameterValue")
		w.want("counts", w.counts(url), [3]string{"0", "0", "2"})
		time.Sleep(10 * time.Second)
		w.want("after 10 s", bodies(w.receive(url, 10, lease(time.Hour))), []string{"queue's"})
		time.Sleep(10 * time.Second)
		w.want("after 20 s", w.counts(url), [3]string{"1", "1", "0"})
		time.Sleep(40 * time.Second)
		w.want("after the retention", w.counts(url), [3]string{"0", "0", "0"})
	})
}

// SQS-F-30
func TestInFlightLimit(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		for _, m := range []string{"1", "2", "3"} {
			w.send(url, m)
		}
		got := w.receive(url, 10, lease(time.Hour))
		w.want("up to the limit", bodies(got), []string{"1", "2"})
		_, err := w.tryReceive(url, 1)
		w.wantCode(err, "OverLimit")
		w.want("a long poll gets nothing", bodies(w.receive(url, 1, wait(20*time.Second))), []string{})
		w.must(w.delete(url, got[0]))
		w.want("room", bodies(w.receive(url, 1)), []string{"3"})
	}, sqs.InFlightLimit(2))
}

// SQS-F-38: a group on a standard queue is a label and blocks nothing.
func TestFairQueue(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		w.send(url, "1", in("tenant"))
		w.send(url, "2", in("tenant"))
		got := w.receive(url, 1)
		w.want("label", got[0].Attributes["MessageGroupId"], "tenant")
		w.want("the next is not blocked", bodies(w.receive(url, 1)), []string{"2"})
		_, err := w.trySend(url, "3", in("tenant", "id"))
		w.wantCode(err, "InvalidParameterValue")
		_, err = w.trySend(url, "3", in(""))
		w.wantCode(err, "InvalidParameterValue")
	})
}

// SQS-F-42: a long poll wakes for what is sent, shows after a delay, or comes back
// after a lease, at its very time.
func TestLongPollWakes(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		start := time.Now()
		poll := func(want ...string) {
			t.Helper()
			got := w.receive(url, 10, wait(20*time.Second), lease(3*time.Second))
			w.want("polled", bodies(got), append([]string{}, want...))
		}
		go func() {
			time.Sleep(7 * time.Second)
			w.send(url, "sent")
		}()
		poll("sent")
		w.want("time", time.Since(start), 7*time.Second)
		poll("sent")
		w.want("time of the expiry", time.Since(start), 10*time.Second)
		w.send(url, "delayed", func(m *sdk.SendMessageInput) { m.DelaySeconds = 2 })
		poll("delayed")
		w.want("time of the delayed", time.Since(start), 12*time.Second)
		_, err := w.c.PurgeQueue(w.ctx(), &sdk.PurgeQueueInput{QueueUrl: &url})
		w.must(err)
		poll()
		w.want("time of nothing", time.Since(start), 32*time.Second)
	})
}

// What shows sooner than all that a poll has in view wakes it at its own time.
func TestLongPollWakesForTheEarliest(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		w.send(url, "held")
		w.receive(url, 1, lease(15*time.Second))
		start := time.Now()
		go func() {
			time.Sleep(time.Second)
			w.send(url, "soon", func(m *sdk.SendMessageInput) { m.DelaySeconds = 2 })
		}()
		w.want("polled", bodies(w.receive(url, 1, wait(20*time.Second))), []string{"soon"})
		w.want("time", time.Since(start), 3*time.Second)
	})
}

// Each message wakes a poll, whatever the order, and none is left asleep beside one.
func TestManyPolls(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		const n = 20
		got := make(chan []string, n)
		for range n {
			go func() { got <- bodies(w.receive(url, 1, wait(20*time.Second))) }()
		}
		synctest.Wait()
		start := time.Now()
		var entries []types.SendMessageBatchRequestEntry
		for i := range 10 {
			entries = append(entries, types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), MessageBody: aws.String(fmt.Sprint(i))})
		}
		for range n / 10 {
			_, err := w.c.SendMessageBatch(w.ctx(), &sdk.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
			w.must(err)
		}
		for range n {
			w.want("messages of a poll", len(<-got), 1)
		}
		w.want("nobody waited", time.Since(start), time.Duration(0))
	})
}

// A queue deleted under a long poll.
func TestDeletedUnderAPoll(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		failed := make(chan error)
		go func() {
			_, err := w.tryReceive(url, 1, wait(20*time.Second))
			failed <- err
		}()
		synctest.Wait()
		_, err := w.c.DeleteQueue(w.ctx(), &sdk.DeleteQueueInput{QueueUrl: &url})
		w.must(err)
		w.wantCode(<-failed, "AWS.SimpleQueueService.NonExistentQueue")
	})
}

// The server's clock moves leases, delays, polls and windows without waiting.
func TestMovableClock(t *testing.T) {
	w := onLoopback(t)
	url := w.fifo("q", "ContentBasedDeduplication", "true")
	w.send(url, "1", in("g"))
	w.receive(url, 1, lease(12*time.Hour))
	w.s.Clock().Advance(12 * time.Hour)
	m := w.receive(url, 1, lease(time.Minute))[0]
	w.must(w.delete(url, m))
	w.send(url, "1", in("g"))
	w.want("past the window", w.counts(url)[0], "1")
}
