package sqs_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"go.uber.org/goleak"

	"github.com/onceline/onceline/internal/bubbletest"
	"github.com/onceline/onceline/localstack/sqs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server, and the vendor's client on it, with helpers that fail the
// test.
type world struct {
	t *testing.T
	s *sqs.Server
	c *sdk.Client
}

// inBubble runs a test in virtual time, without connections.
func inBubble(t *testing.T, f func(w world), options ...sqs.Option) {
	t.Helper()
	bubbletest.Run(t, func(t *testing.T) {
		s := sqs.New(options...)
		defer func() {
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		f(world{t, s, client(s.Transport(), "http://sqs.local")})
	})
}

// onLoopback runs a test over TCP.
func onLoopback(t *testing.T, options ...sqs.Option) world {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := sqs.New(options...)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return world{t, s, client(transport, "http://"+l.Addr().String())}
}

func client(rt http.RoundTripper, endpoint string) *sdk.Client {
	return sdk.New(sdk.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(endpoint), HTTPClient: &http.Client{Transport: rt},
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""), RetryMaxAttempts: 1,
	})
}

func (w world) ctx() context.Context { return w.t.Context() }

// queue creates a queue; attributes come as name, value, name, value.
func (w world) queue(name string, attrs ...string) string {
	w.t.Helper()
	m := map[string]string{}
	for i := 0; i < len(attrs); i += 2 {
		m[attrs[i]] = attrs[i+1]
	}
	out, err := w.c.CreateQueue(w.ctx(), &sdk.CreateQueueInput{QueueName: &name, Attributes: m})
	if err != nil {
		w.t.Fatalf("create %s: %v", name, err)
	}
	return *out.QueueUrl
}

func (w world) fifo(name string, attrs ...string) string {
	w.t.Helper()
	return w.queue(name+".fifo", append(attrs, "FifoQueue", "true")...)
}

func (w world) send(url, body string, edit ...func(*sdk.SendMessageInput)) *sdk.SendMessageOutput {
	w.t.Helper()
	out, err := w.trySend(url, body, edit...)
	if err != nil {
		w.t.Fatalf("send %q: %v", body, err)
	}
	return out
}

func (w world) trySend(url, body string, edit ...func(*sdk.SendMessageInput)) (*sdk.SendMessageOutput, error) {
	in := &sdk.SendMessageInput{QueueUrl: &url, MessageBody: &body}
	for _, e := range edit {
		e(in)
	}
	return w.c.SendMessage(w.ctx(), in)
}

// in puts a message in a group, with a deduplication ID if there is one.
func in(group string, dedup ...string) func(*sdk.SendMessageInput) {
	return func(m *sdk.SendMessageInput) {
		m.MessageGroupId = &group
		if len(dedup) > 0 {
			m.MessageDeduplicationId = &dedup[0]
		}
	}
}

func (w world) receive(url string, max int32, edit ...func(*sdk.ReceiveMessageInput)) []types.Message {
	w.t.Helper()
	out, err := w.tryReceive(url, max, edit...)
	if err != nil {
		w.t.Fatalf("receive: %v", err)
	}
	return out
}

func (w world) tryReceive(url string, max int32, edit ...func(*sdk.ReceiveMessageInput)) ([]types.Message, error) {
	in := &sdk.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: max,
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"}, MessageAttributeNames: []string{"All"}}
	for _, e := range edit {
		e(in)
	}
	out, err := w.c.ReceiveMessage(w.ctx(), in)
	if err != nil {
		return nil, err
	}
	return out.Messages, nil
}

func lease(d time.Duration) func(*sdk.ReceiveMessageInput) {
	return func(in *sdk.ReceiveMessageInput) { in.VisibilityTimeout = int32(d / time.Second) }
}

func wait(d time.Duration) func(*sdk.ReceiveMessageInput) {
	return func(in *sdk.ReceiveMessageInput) { in.WaitTimeSeconds = int32(d / time.Second) }
}

func bodies(ms []types.Message) []string {
	out := []string{}
	for _, m := range ms {
		out = append(out, *m.Body)
	}
	return out
}

func (w world) delete(url string, m types.Message) error {
	_, err := w.c.DeleteMessage(w.ctx(), &sdk.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle})
	return err
}

func (w world) change(url string, m types.Message, d time.Duration) error {
	_, err := w.c.ChangeMessageVisibility(w.ctx(), &sdk.ChangeMessageVisibilityInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: int32(d / time.Second)})
	return err
}

func (w world) attrs(url string) map[string]string {
	w.t.Helper()
	out, err := w.c.GetQueueAttributes(w.ctx(), &sdk.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return out.Attributes
}

// counts is visible, in flight, delayed.
func (w world) counts(url string) [3]string {
	w.t.Helper()
	a := w.attrs(url)
	return [3]string{a["ApproximateNumberOfMessages"], a["ApproximateNumberOfMessagesNotVisible"], a["ApproximateNumberOfMessagesDelayed"]}
}

// code is the error's code as an SDK reports it, "" without an error.
func code(err error) string {
	var api smithy.APIError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &api):
		return api.ErrorCode()
	}
	return err.Error()
}

func (w world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w world) wantCode(err error, want string) {
	w.t.Helper()
	if got := code(err); got != want {
		w.t.Errorf("error code %q, want %q (%v)", got, want, err)
	}
}

func (w world) want(what string, got, want any) {
	w.t.Helper()
	if !reflect.DeepEqual(got, want) {
		w.t.Errorf("%s: %v, want %v", what, got, want)
	}
}
