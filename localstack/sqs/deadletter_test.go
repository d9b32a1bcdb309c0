package sqs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func arn(url string) string {
	return "arn:aws:sqs:us-east-1:000000000000:" + url[strings.LastIndexByte(url, '/')+1:]
}

func redrive(dlq string, max int) string {
	return fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, arn(dlq), max)
}

// SQS-F-34, SQS-F-35, SQS-F-60
func TestDeadLetter(t *testing.T) {
	inBubble(t, func(w world) {
		dlq := w.queue("dlq")
		url := w.queue("q", "RedrivePolicy", redrive(dlq, 2), "VisibilityTimeout", "1", "MessageRetentionPeriod", "60")
		sent := w.send(url, "poison", attr("k", "v"))
		first := w.receive(url, 1)[0]
		time.Sleep(time.Second)
		w.want("second", bodies(w.receive(url, 1)), []string{"poison"})
		time.Sleep(time.Second)
		w.want("no third", bodies(w.receive(url, 1)), []string{})
		dead := w.receive(dlq, 1, lease(time.Hour))[0]
		w.want("the same message", *dead.MessageId, *sent.MessageId)
		w.want("its source", dead.Attributes["DeadLetterQueueSourceArn"], arn(url))
		w.want("the count goes on", dead.Attributes["ApproximateReceiveCount"], "3")
		w.want("the time of the send stays", dead.Attributes["SentTimestamp"], first.Attributes["SentTimestamp"])
		w.want("its attributes", *dead.MessageAttributes["k"].StringValue, "v")
		w.want("the source is empty", w.counts(url), [3]string{"0", "0", "0"})
		w.must(w.set(dlq, map[string]string{"MessageRetentionPeriod": "60"}))
		time.Sleep(58 * time.Second)
		w.want("retention counts from the send", w.counts(dlq), [3]string{"0", "0", "0"})
	})
}

// A long poll on the dead-letter queue sees what a receive on its source moves.
func TestDeadLetterWakes(t *testing.T) {
	inBubble(t, func(w world) {
		dlq := w.queue("dlq")
		url := w.queue("q", "RedrivePolicy", redrive(dlq, 1), "VisibilityTimeout", "1")
		w.send(url, "poison")
		w.receive(url, 1)
		start := time.Now()
		got := make(chan []string)
		go func() { got <- bodies(w.receive(dlq, 1, wait(20*time.Second))) }()
		nothing := make(chan []string)
		go func() { nothing <- bodies(w.receive(url, 1, wait(3*time.Second))) }()
		w.want("moved", <-got, []string{"poison"})
		w.want("as soon as its lease was over", time.Since(start), time.Second)
		w.want("nothing left at the source", <-nothing, []string{})
	})
}

// A chain of dead-letter queues counts the receives of each queue.
func TestDeadLetterChain(t *testing.T) {
	inBubble(t, func(w world) {
		last := w.queue("last", "VisibilityTimeout", "0")
		middle := w.queue("middle", "RedrivePolicy", redrive(last, 1), "VisibilityTimeout", "0")
		url := w.queue("q", "RedrivePolicy", redrive(middle, 1), "VisibilityTimeout", "0")
		w.send(url, "poison")
		for _, u := range []string{url, middle, last} {
			w.want("received", bodies(w.receive(u, 1)), []string{"poison"})
			w.want("moved on", len(w.receive(u, 1)), map[bool]int{false: 0, true: 1}[u == last])
		}
	})
}

// SQS-F-35: a FIFO dead-letter queue starts the retention anew.
func TestFIFODeadLetter(t *testing.T) {
	inBubble(t, func(w world) {
		dlq := w.fifo("dlq", "MessageRetentionPeriod", "60")
		url := w.fifo("q", "RedrivePolicy", redrive(dlq, 1), "VisibilityTimeout", "30")
		w.send(url, "poison", in("g", "id"))
		time.Sleep(50 * time.Second)
		old := w.receive(url, 1)[0]
		w.must(w.change(url, old, 0))
		w.want("moved", bodies(w.receive(url, 1)), []string{})
		w.wantCode(w.delete(url, old), "InvalidParameterValue") // its lease is over, as the message was nacked
		time.Sleep(50 * time.Second)
		m := w.receive(dlq, 1)[0]
		w.want("group and ID stay", m.Attributes["MessageGroupId"]+m.Attributes["MessageDeduplicationId"], "gid")
		w.send(url, "again", in("g", "id"))
		w.want("the ID is remembered by the source", w.counts(url)[0], "0")
	})
}

func TestRedrivePolicy(t *testing.T) {
	inBubble(t, func(w world) {
		dlq, fifo := w.queue("dlq"), w.fifo("f")
		url := w.queue("q")
		set := func(policy string) error { return w.set(url, map[string]string{"RedrivePolicy": policy}) }
		for _, c := range []struct{ policy, want string }{
			{"not JSON", "InvalidParameterValue"}, {`{"maxReceiveCount":1}`, "InvalidParameterValue"}, {`{"deadLetterTargetArn":"` + arn(dlq) + `"}`, "InvalidParameterValue"},
			{redrive(dlq, 0), "InvalidParameterValue"}, {redrive(dlq, 1001), "InvalidParameterValue"}, {redrive(fifo, 1), "InvalidParameterValue"},
			{`{"deadLetterTargetArn":"dummy","maxReceiveCount":1}`, "InvalidParameterValue"},
			{redrive("none", 1), "AWS.SimpleQueueService.NonExistentQueue"},
			{`{"deadLetterTargetArn":"` + arn(dlq) + `","maxReceiveCount":"1000"}`, ""}, {"", ""}, {redrive(dlq, 1), ""},
		} {
			if got := code(set(c.policy)); got != c.want {
				t.Errorf("%s: %q, want %q", c.policy, got, c.want)
			}
		}
		out, err := w.c.ListDeadLetterSourceQueues(w.ctx(), &sdk.ListDeadLetterSourceQueuesInput{QueueUrl: &dlq})
		w.must(err)
		w.want("sources", out.QueueUrls, []string{url})

		for _, c := range []struct{ allow, want string }{
			{`{"redrivePermission":"denyAll"}`, "InvalidParameterValue"},
			{`{"redrivePermission":"byQueue","sourceQueueArns":["` + arn("other") + `"]}`, "InvalidParameterValue"},
			{`{"redrivePermission":"byQueue","sourceQueueArns":["` + arn(url) + `"]}`, ""},
			{`{"redrivePermission":"allowAll"}`, ""},
		} {
			w.must(w.set(dlq, map[string]string{"RedriveAllowPolicy": c.allow}))
			w.must(set(""))
			if got := code(set(redrive(dlq, 1))); got != c.want {
				t.Errorf("%s: %q, want %q", c.allow, got, c.want)
			}
		}
		w.drop(dlq)
		w.send(url, "stays")
		for range 3 {
			m := w.receive(url, 1)
			w.want("nothing is lost without the target", bodies(m), []string{"stays"})
			w.must(w.change(url, m[0], 0))
		}
	})
}

func (w world) tasks(source string) []types.ListMessageMoveTasksResultEntry {
	w.t.Helper()
	out, err := w.c.ListMessageMoveTasks(w.ctx(), &sdk.ListMessageMoveTasksInput{SourceArn: aws.String(arn(source)), MaxResults: aws.Int32(10)})
	w.must(err)
	return out.Results
}

// SQS-F-37, SQS-F-62
func TestMoveTask(t *testing.T) {
	inBubble(t, func(w world) {
		dlq := w.queue("dlq")
		url := w.queue("q", "RedrivePolicy", redrive(dlq, 1), "VisibilityTimeout", "0")
		start := func(to string, rate int32) (string, error) {
			in := &sdk.StartMessageMoveTaskInput{SourceArn: aws.String(arn(dlq))}
			if to != "" {
				in.DestinationArn = aws.String(arn(to))
			}
			if rate > 0 {
				in.MaxNumberOfMessagesPerSecond = &rate
			}
			out, err := w.c.StartMessageMoveTask(w.ctx(), in)
			if err != nil {
				return "", err
			}
			return *out.TaskHandle, nil
		}
		cancel := func(handle string) error {
			_, err := w.c.CancelMessageMoveTask(w.ctx(), &sdk.CancelMessageMoveTaskInput{TaskHandle: &handle})
			return err
		}
		sent := w.send(url, "1")
		w.receive(url, 1)
		w.receive(url, 1)
		_, err := start("", 0)
		w.must(err)
		back := w.receive(url, 1, lease(time.Second))[0]
		w.want("a new identity", *back.MessageId != *sent.MessageId, true)
		w.want("a new count", back.Attributes["ApproximateReceiveCount"], "1")
		task := w.tasks(dlq)[0]
		w.want("task", []any{*task.Status, task.ApproximateNumberOfMessagesMoved, *task.ApproximateNumberOfMessagesToMove, *task.SourceArn}, []any{"COMPLETED", int64(1), int64(1), arn(dlq)})

		for i := range 5 {
			w.send(dlq, fmt.Sprint(i))
		}
		to := w.queue("to")
		handle, err := start("to", 2)
		w.must(err)
		_, err = start("to", 2)
		w.wantCode(err, "InvalidParameterValue")
		time.Sleep(time.Second + time.Millisecond)
		w.want("after a second", w.counts(to)[0], "4")
		w.want("running", *w.tasks(dlq)[0].TaskHandle, handle)
		w.must(cancel(handle))
		w.wantCode(cancel(handle), "InvalidParameterValue")
		w.want("cancelled", *w.tasks(dlq)[0].Status, "CANCELLED")
		time.Sleep(time.Minute)
		w.want("and not going on", w.counts(dlq)[0], "1")

		_, err = start("", 0)
		w.must(err)
		w.want("a message sent to the queue itself has no source", *w.tasks(dlq)[0].FailureReason, "CouldNotDetermineMessageSource")
		w.want("it stays", w.counts(dlq)[0], "1")
		w.want("three tasks", len(w.tasks(dlq)), 3)

		_, err = start("none", 0)
		w.wantCode(err, "ResourceNotFoundException")
		_, err = start("to", 501)
		w.wantCode(err, "InvalidParameterValue")
		w.wantCode(cancel("garbage"), "InvalidParameterValue")
		_, err = w.c.StartMessageMoveTask(w.ctx(), &sdk.StartMessageMoveTaskInput{SourceArn: aws.String(arn(url))})
		w.wantCode(err, "InvalidParameterValue") // nobody's dead-letter queue

		w.send(dlq, "x")
		w.send(dlq, "y")
		_, err = start("to", 1)
		w.must(err)
		w.drop(to)
		time.Sleep(2 * time.Second)
		failed := w.tasks(dlq)[0]
		w.want("destination deleted", *failed.Status+" "+*failed.FailureReason, "FAILED AWS.SimpleQueueService.NonExistentQueue")
	})
}
