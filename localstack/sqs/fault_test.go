package sqs_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"

	"github.com/onceline/onceline/internal/bubbletest"
	"github.com/onceline/onceline/localstack/fault"
	"github.com/onceline/onceline/localstack/sqs"
)

// both runs a test in virtual time, and over TCP with time that is moved.
func both(t *testing.T, f func(w world)) {
	t.Run("in process", func(t *testing.T) { inBubble(t, f) })
	t.Run("loopback", func(t *testing.T) { f(onLoopback(t)) })
}

// giveUp runs f with a context that ends once the fault has struck, and returns
// what f made of that.
func (w world) giveUp(i *fault.Injection, f func(ctx context.Context) error) error {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	w.must(i.WaitHit(w.ctx()))
	if i.Fault().Kind == fault.LoseResponse {
		w.must(i.WaitApplied(w.ctx()))
	}
	select {
	case err := <-done:
		w.t.Errorf("an answer though it was lost: %v", err)
	default:
	}
	cancel()
	return <-done
}

func (w world) sendIn(ctx context.Context, url, body string) error {
	_, err := w.c.SendMessage(ctx, &sdk.SendMessageInput{QueueUrl: &url, MessageBody: &body})
	return err
}

func TestLoseRequest(t *testing.T) {
	both(t, func(w world) {
		url := w.queue("q")
		i := w.s.Faults().Inject(fault.Fault{Op: fault.Publish, Kind: fault.LoseRequest, Times: 1}, nil)
		err := w.giveUp(i, func(ctx context.Context) error { return w.sendIn(ctx, url, "1") })
		w.want("cancelled", errors.Is(err, context.Canceled), true)
		w.want("not applied", w.counts(url)[0], "0")
		w.send(url, "2")
	})
}

func TestLoseResponse(t *testing.T) {
	both(t, func(w world) {
		url := w.queue("q")
		i := w.s.Faults().Inject(fault.Fault{Op: fault.Publish, Kind: fault.LoseResponse, Times: 1}, nil)
		err := w.giveUp(i, func(ctx context.Context) error { return w.sendIn(ctx, url, "1") })
		w.want("cancelled", errors.Is(err, context.Canceled), true)
		w.want("applied", w.counts(url)[0], "1")
		w.want("counted", []int{i.Hits(), i.Applied(), i.Rejected()}, []int{1, 1, 0})

		i = w.s.Faults().Inject(fault.Fault{Op: fault.Publish, Kind: fault.LoseResponse, Times: 1, Cut: true}, nil)
		if err := w.sendIn(w.ctx(), url, ""); code(err) == "MissingParameter" || err == nil {
			t.Errorf("cut: %v", err)
		}
		w.want("refused behind the client's back", []int{i.Applied(), i.Rejected()}, []int{0, 1})
	})
}

// A lost response of a receive leaves the messages in flight; a receive that has
// nothing is not struck.
func TestLoseHandout(t *testing.T) {
	both(t, func(w world) {
		url := w.fifo("q", "ContentBasedDeduplication", "true")
		i := w.s.Faults().Inject(fault.Fault{Op: fault.Receive, Kind: fault.LoseResponse, Times: 1, Match: "q.fifo"}, nil)
		w.want("nothing to hand out", bodies(w.receive(url, 1)), []string{})
		w.send(url, "1", in("g"))
		err := w.giveUp(i, func(ctx context.Context) error {
			_, err := w.c.ReceiveMessage(ctx, &sdk.ReceiveMessageInput{QueueUrl: &url, ReceiveRequestAttemptId: aws.String("a")})
			return err
		})
		w.want("cancelled", errors.Is(err, context.Canceled), true)
		w.want("in flight", w.counts(url), [3]string{"0", "1", "0"})
		w.want("asked again", bodies(w.receive(url, 1, attempt("a"))), []string{"1"})
	})
}

func TestCut(t *testing.T) {
	both(t, func(w world) {
		url := w.queue("q")
		w.s.Faults().Inject(fault.Fault{Op: fault.Publish, Kind: fault.Cut, Times: 1}, nil)
		err := w.sendIn(w.ctx(), url, "1")
		w.want("the connection ended", errors.Is(err, io.EOF), true)
		w.want("not applied", w.counts(url)[0], "0")
	})
}

func TestErrors(t *testing.T) {
	both(t, func(w world) {
		url := w.queue("q")
		for status, want := range map[int]string{0: "ServiceUnavailable", 503: "ServiceUnavailable", 500: "InternalFailure", 403: "RequestThrottled",
			429: "ThrottlingException", 401: "AccessDenied", 404: "AWS.SimpleQueueService.NonExistentQueue", 400: "InvalidParameterValue", 502: "Injected502"} {
			i := w.s.Faults().Inject(fault.Fault{Op: fault.Publish, Kind: fault.Error, Code: status, Times: 1, Cut: status == 500}, nil)
			err := w.sendIn(w.ctx(), url, "1")
			w.wantCode(err, want)
			var api smithy.APIError
			if status >= 500 && errors.As(err, &api) && api.ErrorFault() == smithy.FaultClient {
				t.Errorf("%d: the client's fault", status)
			}
			w.want("hits", i.Hits(), 1)
		}
		w.want("nothing applied", w.counts(url)[0], "0")
	})
}

func TestDelay(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		i := w.s.Faults().Inject(fault.Fault{Op: fault.Publish, Kind: fault.Delay, Delay: time.Minute, Times: 1}, nil)
		start := time.Now()
		w.send(url, "1")
		w.want("delayed", time.Since(start), time.Minute)
		w.want("sent on", i.Applied(), 1)

		// A client that gives up meanwhile takes its request with it.
		i = w.s.Faults().Inject(fault.Fault{Op: fault.Publish, Kind: fault.Delay, Delay: time.Minute, Times: 1}, nil)
		w.must(ignore(w.giveUp(i, func(ctx context.Context) error { return w.sendIn(ctx, url, "2") })))
		time.Sleep(time.Hour)
		w.want("one", w.counts(url)[0], "1")
		w.want("not sent on", i.Applied(), 0)
	})
}

func ignore(error) error { return nil }

// Which requests a fault concerns: class, operation, queue.
func TestMatch(t *testing.T) {
	inBubble(t, func(w world) {
		a, b := w.queue("a"), w.queue("b")
		inject := func(f fault.Fault) *fault.Injection {
			f.Kind, f.Times = fault.Error, 1
			return w.s.Faults().Inject(f, nil)
		}
		i := inject(fault.Fault{Op: fault.Publish, Match: "b"})
		w.must(w.sendIn(w.ctx(), a, "1"))
		w.wantCode(w.sendIn(w.ctx(), b, "1"), "ServiceUnavailable")
		w.want("hits", i.Hits(), 1)
		inject(fault.Fault{API: "DeleteMessage"})
		m := w.receive(a, 1)[0]
		w.must(w.change(a, m, time.Minute))
		w.wantCode(w.delete(a, m), "ServiceUnavailable")
		inject(fault.Fault{Op: fault.Settle})
		w.wantCode(w.change(a, m, time.Minute), "ServiceUnavailable")
		inject(fault.Fault{Op: fault.Receive})
		_, err := w.tryReceive(a, 1)
		w.wantCode(err, "ServiceUnavailable")
		inject(fault.Fault{Op: fault.Admin, Match: "c"})
		w.wantCode(w.create("c", nil), "ServiceUnavailable")
		inject(fault.Fault{})
		_, err = w.c.ListQueues(w.ctx(), &sdk.ListQueuesInput{})
		w.wantCode(err, "ServiceUnavailable")
		if sqs.CheckAPI("SendMessageBatch") != nil || sqs.CheckAPI("Send") == nil {
			t.Error("CheckAPI")
		}
	})
}

// A restart ends what waits and loses nothing.
func TestRestart(t *testing.T) {
	both(t, func(w world) {
		url := w.fifo("q", "ContentBasedDeduplication", "true")
		w.send(url, "held", in("g"))
		m := w.receive(url, 1)[0]
		polled, lost := make(chan error, 1), make(chan error, 1)
		i := w.s.Faults().Inject(fault.Fault{Op: fault.Publish, Kind: fault.LoseResponse, Times: 1}, nil)
		go func() {
			_, err := w.tryReceive(url, 1, wait(20*time.Second))
			polled <- err
		}()
		go func() {
			_, err := w.trySend(url, "behind", in("g"))
			lost <- err
		}()
		w.must(i.WaitApplied(w.ctx()))
		w.s.Restart(false)
		if err := <-lost; err == nil {
			t.Error("an answer after the restart")
		}
		for ended := false; !ended; {
			w.s.Restart(true) // again and again, as the poll may be on its way to the server
			select {
			case err := <-polled:
				if ended = true; err == nil {
					t.Error("the poll ended without an error")
				}
			case <-time.After(time.Millisecond):
			}
		}
		w.must(w.delete(url, m))
		w.want("kept", bodies(w.receive(url, 10)), []string{"behind"})
		w.send(url, "held", in("g"))
		w.want("remembered", w.counts(url), [3]string{"0", "1", "0"})
	})
}

// Close ends what waits, and what comes later has no server.
func TestClose(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		polled := make(chan error)
		go func() {
			_, err := w.tryReceive(url, 1, wait(20*time.Second))
			polled <- err
		}()
		synctest.Wait()
		w.must(w.s.Close(w.ctx()))
		w.want("ended", errors.Is(<-polled, io.EOF), true)
		w.want("no server", errors.Is(w.sendIn(w.ctx(), url, "1"), io.EOF), true)
		w.must(w.s.Close(w.ctx()))
	})
}

// A handler that is called without a server or connection holds until the
// request's context ends, and has nothing to cut.
func TestPlainHandler(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		s := sqs.New()
		s.Faults().Inject(fault.Fault{Op: fault.Admin, Kind: fault.LoseResponse, Times: 1}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		w := try(ctx, s, "CreateQueue", `{"QueueName":"q"}`)
		if w.Code != http.StatusServiceUnavailable || time.Since(start) != time.Minute {
			t.Errorf("%d after %v", w.Code, time.Since(start))
		}
		if w := try(t.Context(), s, "GetQueueUrl", `{"QueueName":"q"}`); w.Code != http.StatusOK {
			t.Errorf("not applied: %d %s", w.Code, w.Body)
		}
	})
}
