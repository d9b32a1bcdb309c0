package sqs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceline/onceline/localstack/sqs"
)

// Faults that other emulators had, by the ID of the public report.

// localstack/localstack#3319: a message that moves to the dead-letter queue
// releases its group.
func TestCasePoisonReleasesItsGroup(t *testing.T) {
	inBubble(t, func(w world) {
		dlq := w.fifo("dlq")
		url := w.fifo("q", "RedrivePolicy", redrive(dlq, 2), "ContentBasedDeduplication", "true")
		w.send(url, "poison", in("g"))
		w.send(url, "good", in("g"))
		for range 2 {
			m := w.receive(url, 1)
			w.want("poison", bodies(m), []string{"poison"})
			w.must(w.change(url, m[0], 0))
		}
		w.want("the same receive gives the next", bodies(w.receive(url, 1)), []string{"good"})
		w.want("dead letter", bodies(w.receive(dlq, 1)), []string{"poison"})
	})
}

// localstack/localstack#8146, localstack/localstack#10460: the scope of the IDs is
// the queue, or the group where that is asked for.
func TestCaseDedupScopes(t *testing.T) {
	inBubble(t, func(w world) {
		for scope, want := range map[string]string{"queue": "1", "messageGroup": "2"} {
			url := w.fifo(scope, "DeduplicationScope", scope)
			w.send(url, "b", in("g1", "X"))
			w.send(url, "b", in("g2", "X"))
			w.want(scope, w.counts(url)[0], want)
		}
	})
}

// softwaremill/elasticmq#320: eleven attributes are refused, in a batch too.
func TestCaseElevenAttributes(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		for n, want := range map[int]string{10: "", 11: "InvalidParameterValue"} {
			_, err := w.trySend(url, "b", func(m *sdk.SendMessageInput) {
				for i := range n {
					attr(fmt.Sprint("a", i), "v")(m)
				}
			})
			w.wantCode(err, want)
		}
		w.want("attributes", len(w.receive(url, 1)[0].MessageAttributes), 10)
	})
}

// softwaremill/elasticmq#354, and kumo: an ID is remembered after its message was
// deleted (SQS-F-04).
func TestCaseDedupAfterDelete(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.fifo("q")
		w.send(url, "1", in("g", "X"))
		w.must(w.delete(url, w.receive(url, 1)[0]))
		w.send(url, "2", in("g", "X"))
		w.want("nothing", bodies(w.receive(url, 1)), []string{})
	})
}

// softwaremill/elasticmq#437: a purge forgets the IDs (SQS-F-10).
func TestCaseDedupAfterPurge(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.fifo("q")
		w.send(url, "1", in("g", "X"))
		_, err := w.c.PurgeQueue(w.ctx(), &sdk.PurgeQueueInput{QueueUrl: &url})
		w.must(err)
		w.send(url, "2", in("g", "X"))
		w.want("accepted", bodies(w.receive(url, 1)), []string{"2"})
	})
}

// softwaremill/elasticmq#2: handles are made for each receive, so that the first
// holder of a message can't delete it under the second.
func TestCaseHandlePerReceive(t *testing.T) {
	inBubble(t, func(w world) {
		standard, fifo := w.queue("q"), w.fifo("q", "ContentBasedDeduplication", "true")
		w.send(standard, "m")
		w.send(fifo, "m", in("g"))
		for url, refusal := range map[string]string{standard: "", fifo: "InvalidParameterValue"} {
			a := w.receive(url, 1, lease(time.Second))[0]
			time.Sleep(2 * time.Second)
			b := w.receive(url, 1, lease(time.Minute))[0]
			w.want("handles differ", *a.ReceiptHandle != *b.ReceiptHandle, true)
			w.wantCode(w.delete(url, a), refusal)
			w.must(w.change(url, b, 0))
			w.want("still there", bodies(w.receive(url, 1)), []string{"m"})
		}
	}, sqs.IgnoreStaleDeletes())
}

// Admiral-Piett/goaws#211: a message isn't handed to a long poll whose client has
// gone.
func TestCaseLongPollOfAGoneClient(t *testing.T) {
	both(t, func(w world) {
		url := w.queue("q")
		for range 20 {
			ctx, cancel := context.WithCancel(w.ctx())
			gone := make(chan error, 1)
			go func() {
				_, err := w.c.ReceiveMessage(ctx, &sdk.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 20})
				gone <- err
			}()
			cancel()
			if err := <-gone; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		w.send(url, "m")
		w.want("received", bodies(w.receive(url, 1, wait(time.Second))), []string{"m"})
	})
}
