package sqs_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceline/onceline/localstack/sqs"
)

// SQS-F-02, SQS-F-03, SQS-F-11: the window is five minutes from the first accepted
// send, whatever comes between; a duplicate is answered as the first was.
func TestDedupWindow(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.fifo("q")
		first := w.send(url, "1", in("g", "id"))
		time.Sleep(4 * time.Minute)
		again := w.send(url, "2", in("g", "id"))
		w.want("id of a duplicate", *again.MessageId, *first.MessageId)
		w.want("sequence number of a duplicate", *again.SequenceNumber, *first.SequenceNumber)
		time.Sleep(time.Minute - time.Second)
		w.send(url, "3", in("g", "id"))
		w.want("in the window", w.counts(url)[0], "1")
		time.Sleep(time.Second)
		late := w.send(url, "4", in("g", "id"))
		w.want("late one is new", *late.MessageId != *first.MessageId, true)
		w.want("bodies", bodies(w.receive(url, 10)), []string{"1", "4"})
	})
}

// SQS-F-05, SQS-F-06
func TestDedupScope(t *testing.T) {
	inBubble(t, func(w world) {
		whole := w.fifo("whole")
		w.send(whole, "1", in("a", "id"))
		w.send(whole, "2", in("b", "id"))
		w.want("scope queue", bodies(w.receive(whole, 10)), []string{"1"})

		group := w.fifo("group", "DeduplicationScope", "messageGroup")
		w.send(group, "1", in("a", "id"))
		w.send(group, "2", in("b", "id"))
		w.send(group, "3", in("b", "id"))
		w.want("scope group", bodies(w.receive(group, 10)), []string{"1", "2"})
	})
}

// SQS-F-07: a changed scope is not at once in force.
func TestDedupScopeChangesLate(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.fifo("q")
		w.send(url, "1", in("a", "id"))
		_, err := w.c.SetQueueAttributes(w.ctx(), &sdk.SetQueueAttributesInput{QueueUrl: &url, Attributes: map[string]string{"DeduplicationScope": "messageGroup"}})
		w.must(err)
		w.want("shown at once", w.attrs(url)["DeduplicationScope"], "messageGroup")
		w.send(url, "2", in("b", "id"))
		w.want("not in force", w.counts(url)[0], "1")
		time.Sleep(time.Minute)
		w.send(url, "3", in("b", "id"))
		w.want("in force", w.counts(url)[0], "2")
	})
}

// SQS-F-08
func TestContentBasedDedup(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.fifo("q", "ContentBasedDeduplication", "true")
		w.send(url, "body", in("a"))
		w.send(url, "body", in("b"), attr("k", "v")) // neither group nor attributes count
		w.send(url, "body", in("c", "own"))          // an ID of one's own wins
		w.send(url, "other", in("d", fmt.Sprintf("%x", sha256.Sum256([]byte("body")))))
		w.want("bodies", bodies(w.receive(url, 10)), []string{"body", "body"})
	})
}

// SQS-F-01, SQS-F-09, SQS-F-16, SQS-F-68
func TestFIFORefusals(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.fifo("q", "DelaySeconds", "2")
		for _, id := range []string{"", "with space", "ünï", strings.Repeat("a", 129)} {
			_, err := w.trySend(url, "b", in("g", id))
			w.wantCode(err, "InvalidParameterValue")
			_, err = w.trySend(url, "b", in(id, "id"))
			w.wantCode(err, "InvalidParameterValue")
		}
		_, err := w.trySend(url, "b", in("g"))
		w.wantCode(err, "InvalidParameterValue")
		_, err = w.trySend(url, "b")
		w.wantCode(err, "MissingParameter")
		_, err = w.trySend(url, "b", in("g", "1"), func(m *sdk.SendMessageInput) { m.DelaySeconds = 1 })
		w.wantCode(err, "InvalidParameterValue")
		w.want("nothing was stored", w.counts(url), [3]string{"0", "0", "0"})

		w.send(url, "128 of all characters", in(strings.Repeat("~", 128), "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"))
		w.want("the queue's delay", w.counts(url), [3]string{"0", "0", "1"})
	})
}

// SQS-F-28, SQS-F-51: one receive takes from one group after the other, and a group
// with a message in flight gives nothing from there on.
func TestGroups(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.fifo("q", "ContentBasedDeduplication", "true")
		for _, m := range []string{"a1", "b1", "a2", "a3", "c1"} {
			w.send(url, m, in(m[:1]))
		}
		first := w.receive(url, 2, lease(30*time.Second))
		w.want("one group", bodies(first), []string{"a1", "a2"})
		w.want("the others", bodies(w.receive(url, 10)), []string{"b1", "c1"})
		w.must(w.delete(url, first[0]))
		w.want("a2 is still in flight", bodies(w.receive(url, 10)), []string{})
		w.must(w.delete(url, first[1]))
		w.want("unblocked", bodies(w.receive(url, 10)), []string{"a3"})
	})
}

// kumo reorders a group after an expiry (emulators-and-sdks): the order holds over
// any mix of expiry, nack and new messages.
func TestOrderOverRedelivery(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.fifo("q", "ContentBasedDeduplication", "true")
		for _, m := range []string{"1", "2", "3", "4"} {
			w.send(url, m, in("g"))
		}
		w.want("first", bodies(w.receive(url, 2, lease(10*time.Second))), []string{"1", "2"})
		w.send(url, "5", in("g"))
		time.Sleep(10 * time.Second)
		got := w.receive(url, 3, lease(10*time.Second))
		w.want("after expiry", bodies(got), []string{"1", "2", "3"})
		w.must(w.delete(url, got[0]))
		w.must(w.change(url, got[1], 0))
		again := w.receive(url, 10, lease(10*time.Second))
		w.want("nacked, and those behind it still in flight", bodies(again), []string{"2"})
		time.Sleep(11 * time.Second)
		w.want("the rest", bodies(w.receive(url, 10)), []string{"2", "3", "4", "5"})
	})
}

// SQS-F-50: what is before the first hidden message may be received.
func TestGroupIsBlockedFromTheFirstHiddenOn(t *testing.T) {
	for extended, want := range [][]string{{}, {"1"}, {"1", "2"}} {
		inBubble(t, func(w world) {
			url := w.fifo("q", "ContentBasedDeduplication", "true")
			for _, m := range []string{"1", "2", "3"} {
				w.send(url, m, in("g"))
			}
			got := w.receive(url, 10, lease(time.Second))
			w.must(w.change(url, got[extended], 10*time.Second))
			time.Sleep(5 * time.Second)
			w.want(fmt.Sprintf("with %s extended", *got[extended].Body), bodies(w.receive(url, 10)), want)
		})
	}
}

// SQS-F-22, SQS-F-26
func TestFIFOHandles(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.fifo("q", "ContentBasedDeduplication", "true")
		w.send(url, "1", in("g"))
		old := w.receive(url, 1, lease(5*time.Second))[0]
		time.Sleep(5 * time.Second)
		expired := fmt.Sprintf("Value %s for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.", *old.ReceiptHandle)
		for _, err := range []error{w.delete(url, old), w.change(url, old, time.Minute)} {
			w.wantCode(err, "InvalidParameterValue")
			w.want("reason", strings.Contains(err.Error(), expired), true)
		}
		now := w.receive(url, 1, lease(5*time.Second))[0]
		w.wantCode(w.delete(url, old), "InvalidParameterValue")
		w.must(w.delete(url, now))
		w.must(w.delete(url, now)) // harmless while the handle has not expired
		time.Sleep(5 * time.Second)
		w.wantCode(w.delete(url, now), "InvalidParameterValue")
		w.wantCode(w.change(url, now, time.Second), "InvalidParameterValue")

		w.send(url, "2", in("g"))
		extended := w.receive(url, 1, lease(5*time.Second))[0]
		w.must(w.change(url, extended, time.Minute))
		w.must(w.delete(url, extended))
		time.Sleep(30 * time.Second)
		w.must(w.delete(url, extended)) // the lease had been extended
		time.Sleep(31 * time.Second)
		w.wantCode(w.delete(url, extended), "InvalidParameterValue")
	})
}

func attempt(id string) func(*sdk.ReceiveMessageInput) {
	return func(in *sdk.ReceiveMessageInput) { in.ReceiveRequestAttemptId = &id }
}

// SQS-F-27, SQS-F-59
func TestReceiveAttempt(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.fifo("q", "ContentBasedDeduplication", "true")
		for _, m := range []string{"1", "2", "3"} {
			w.send(url, m, in(m))
		}
		first := w.receive(url, 2, attempt("a"), lease(10*time.Second))
		time.Sleep(8 * time.Second)
		again := w.receive(url, 2, attempt("a"), lease(10*time.Second))
		w.want("bodies", bodies(again), bodies(first))
		w.want("handle", *again[0].ReceiptHandle, *first[0].ReceiptHandle)
		w.want("another attempt gets others", bodies(w.receive(url, 2, attempt("b"))), []string{"3"})
		time.Sleep(8 * time.Second) // the lease began anew
		w.must(w.delete(url, first[0]))
		_, err := w.tryReceive(url, 2, attempt("a"))
		w.wantCode(err, "InvalidParameterValue")
		w.want("reason", strings.Contains(err.Error(), "not retryable"), true)
		time.Sleep(5 * time.Minute)
		w.want("forgotten", bodies(w.receive(url, 2, attempt("a"), lease(time.Second))), []string{"2", "3"})
		time.Sleep(2 * time.Second)
		w.want("after the lease it is a new receive", bodies(w.receive(url, 2, attempt("a"))), []string{"2", "3"})
		_, err = w.tryReceive(url, 2, attempt("no spaces"))
		w.wantCode(err, "InvalidParameterValue")

		standard := w.queue("standard")
		w.send(standard, "1")
		w.receive(standard, 1, attempt("a"))
		w.want("a standard queue doesn't look at it", bodies(w.receive(standard, 1, attempt("a"))), []string{})
	})
}

// A lease that starts anew doesn't keep others from ending at their time.
func TestReceiveAttemptAmongOthers(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.fifo("q", "ContentBasedDeduplication", "true")
		for _, m := range []string{"1", "2", "3"} {
			w.send(url, m, in(m))
		}
		w.receive(url, 1, attempt("a"), lease(10*time.Second))
		w.receive(url, 2, lease(20*time.Second))
		time.Sleep(8 * time.Second)
		w.receive(url, 1, attempt("a"), lease(time.Minute))
		time.Sleep(12 * time.Second)
		w.want("the others", bodies(w.receive(url, 10)), []string{"2", "3"})
	})
}

// SQS-F-32
func TestBacklogLimit(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.fifo("q", "ContentBasedDeduplication", "true")
		for _, m := range []string{"a1", "a2", "a3", "b1"} {
			w.send(url, m, in(m[:1]))
		}
		hot := w.receive(url, 1, lease(time.Minute))
		w.want("hot group first", bodies(hot), []string{"a1"})
		w.want("the blocked group starves the other", bodies(w.receive(url, 10)), []string{})
		w.must(w.delete(url, hot[0]))
		got := w.receive(url, 10, lease(time.Minute))
		w.want("b1 is in sight", bodies(got), []string{"b1", "a2", "a3"})
	}, sqs.BacklogLimit(3))
}

// SQS-F-12
func TestSequenceNumbers(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.fifo("q", "ContentBasedDeduplication", "true")
		last := ""
		for i := range 20 {
			n := *w.send(url, fmt.Sprint(i), in("g")).SequenceNumber
			if len(n) != 20 || n <= last {
				t.Fatalf("sequence number %s after %s", n, last)
			}
			last = n
		}
		m := w.receive(url, 1)[0]
		w.want("attributes", []string{m.Attributes["MessageGroupId"], m.Attributes["MessageDeduplicationId"]},
			[]string{"g", fmt.Sprintf("%x", sha256.Sum256([]byte("0")))})
		if m.Attributes["SequenceNumber"] >= last {
			t.Errorf("sequence number %s of the first message", m.Attributes["SequenceNumber"])
		}
	})
}

// SQS-F-10
func TestPurge(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.fifo("q")
		purge := func() error {
			_, err := w.c.PurgeQueue(w.ctx(), &sdk.PurgeQueueInput{QueueUrl: &url})
			return err
		}
		w.send(url, "1", in("g", "id"))
		held := w.receive(url, 1)[0]
		w.send(url, "2", in("h", "id2"))
		w.must(purge())
		w.want("empty, also of what was in flight", w.counts(url), [3]string{"0", "0", "0"})
		w.must(w.delete(url, held))
		w.send(url, "3", in("g", "id"))
		w.want("the IDs are forgotten", bodies(w.receive(url, 1)), []string{"3"})
		w.wantCode(purge(), "AWS.SimpleQueueService.PurgeQueueInProgress")
		time.Sleep(time.Minute)
		w.must(purge())
		time.Sleep(time.Hour) // no lease of a purged message comes to life
		w.want("nothing", bodies(w.receive(url, 10)), []string{})
	})
}

// SQS-F-31: at the limit a FIFO queue gives nothing and says nothing; a long poll
// goes on when there is room.
func TestFIFOInFlightLimit(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.fifo("q", "ContentBasedDeduplication", "true")
		for _, m := range []string{"1", "2", "3"} {
			w.send(url, m, in(m))
		}
		got := w.receive(url, 10)
		w.want("up to the limit", bodies(got), []string{"1", "2"})
		w.want("nothing more", bodies(w.receive(url, 10)), []string{})
		polled := make(chan []string)
		go func() { polled <- bodies(w.receive(url, 10, wait(20*time.Second))) }()
		synctest.Wait()
		w.must(w.delete(url, got[0]))
		w.want("room", <-polled, []string{"3"})
	}, sqs.InFlightLimit(2))
}

func attr(name, value string) func(*sdk.SendMessageInput) {
	return func(m *sdk.SendMessageInput) { setAttr(m, name, "String", aws.String(value), nil) }
}
