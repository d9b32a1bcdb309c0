package localstack_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/onceline/onceline/localstack"
)

// sqsClient is the vendor's client with one queue of its own.
type sqsClient struct {
	*testing.T
	*sqs.Client
	queue *string
}

func sqsConnect(t *testing.T, url string) *sqsClient {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c := &sqsClient{T: t, Client: sqs.New(sqs.Options{
		BaseEndpoint: aws.String("http://" + strings.TrimPrefix(url, "sqs://")), Region: "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""), Retryer: aws.NopRetryer{},
		HTTPClient: &http.Client{Transport: transport},
	})}
	resp, err := c.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("q")})
	if err != nil {
		t.Fatal(err)
	}
	c.queue = resp.QueueUrl
	return c
}

func (c *sqsClient) send(ctx context.Context, body string) error {
	_, err := c.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: c.queue, MessageBody: &body})
	return err
}

// drain receives and deletes all messages.
func (c *sqsClient) drain() string {
	c.Helper()
	var bodies []string
	for {
		resp, err := c.ReceiveMessage(c.Context(), &sqs.ReceiveMessageInput{QueueUrl: c.queue, MaxNumberOfMessages: 10})
		if err != nil {
			c.Fatal(err)
		}
		if len(resp.Messages) == 0 {
			return strings.Join(bodies, " ")
		}
		for _, m := range resp.Messages {
			bodies = append(bodies, *m.Body)
			if _, err := c.DeleteMessage(c.Context(), &sqs.DeleteMessageInput{QueueUrl: c.queue, ReceiptHandle: m.ReceiptHandle}); err != nil {
				c.Fatal(err)
			}
		}
	}
}

func sqsFaults(t *testing.T, e *localstack.Server) *sqsClient {
	if e.Real() {
		t.Error("somebody's model says that it is the vendor's own")
	}
	c := sqsConnect(t, e.Address())
	for _, f := range []localstack.Fault{
		{Kind: localstack.LoseResponse}, {Kind: localstack.LoseRequest}, {Kind: localstack.LoseResponse, Cut: true},
		{Kind: localstack.Cut}, {Kind: localstack.Error, Code: 503}, {Kind: localstack.Delay, Delay: short},
	} {
		f.Op, f.Match, f.Times = localstack.Publish, "q", 1
		i := inject(t, e, f)
		began := time.Now()
		err := c.send(untilLost(t, i), "m")
		want := ""
		switch f.Kind {
		case localstack.LoseResponse:
			want = "m"
			if err := i.WaitApplied(t.Context()); err != nil {
				t.Fatal(err)
			}
			counts(t, i, 1, 1, 0)
		case localstack.Delay:
			want = "m"
			if time.Since(began) < short {
				t.Errorf("a delayed publish took %v", time.Since(began))
			}
			counts(t, i, 1, 1, 0)
		default:
			counts(t, i, 1, 0, 0)
		}
		if (err == nil) != (f.Kind == localstack.Delay) {
			t.Errorf("%+v: %v", f, err)
		}
		if got := c.drain(); got != want {
			t.Errorf("%+v: stored %q, want %q", f, got, want)
		}
	}
	empty := inject(t, e, localstack.Fault{Op: localstack.Receive, Kind: localstack.LoseResponse, Times: 1, Cut: true})
	c.drain()
	counts(t, empty, 0, 0, 0) // nothing was handed out
	if err := c.send(t.Context(), "taken"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: c.queue, VisibilityTimeout: 1, WaitTimeSeconds: 1}); err == nil {
		t.Error("an answer that was lost has come")
	}
	counts(t, empty, 1, 1, 0)
	if got := eventually(t, func() (string, bool) { s := c.drain(); return s, s != "" }); got != "taken" {
		t.Errorf("after the lease: %q", got)
	}
	return c
}

func TestElasticMQ(t *testing.T) {
	e := startReal(t, func(ctx context.Context) (*localstack.Server, error) { return localstack.StartElasticMQ(ctx) })
	t.Logf("memory %s", resident(e.Pid()))
	c := sqsFaults(t, e)
	if !strings.Contains(*c.queue, e.Address()) {
		t.Errorf("queue URL %s leads around the proxy", *c.queue)
	}
	if err := c.send(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	pid := e.Pid()
	if err := e.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone(t, pid)
	if got := c.drain(); got != "kept" {
		t.Errorf("after the kill: %q", got)
	}
}

func TestMoto(t *testing.T) {
	e := startReal(t, func(ctx context.Context) (*localstack.Server, error) { return localstack.StartMoto(ctx) })
	t.Logf("memory %s", resident(e.Pid()))
	sqsFaults(t, e)
	if err := e.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	sqsConnect(t, e.Address()) // it is there again, and empty
}

func TestLocalStack(t *testing.T) {
	e := startReal(t, func(ctx context.Context) (*localstack.Server, error) { return localstack.StartLocalStack(ctx) })
	t.Logf("memory %s", resident(e.Pid()))
	c := sqsFaults(t, e)
	if !strings.Contains(*c.queue, e.Address()) {
		t.Errorf("queue URL %s leads around the proxy", *c.queue)
	}
	pid := e.Pid()
	if err := e.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone(t, pid)
	sqsConnect(t, e.Address()) // it is there again, and empty
}

func TestModelsInPythonNeedIt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for name, start := range map[string]func(context.Context, ...localstack.ServerOption) (*localstack.Server, error){
		"moto": localstack.StartMoto, "LocalStack": localstack.StartLocalStack,
	} {
		if _, err := start(t.Context(), localstack.CacheDir(t.TempDir())); !errors.Is(err, localstack.ErrNotInstalled) {
			t.Errorf("%s without Python: %v", name, err)
		}
	}
}

// The front of these servers shows the same on the model.
func TestSQSProxyOnTheModel(t *testing.T) {
	m, err := localstack.StartSQS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, m)
	e := localstack.ProxyOfSQS(t, m.Address())
	closeAtEnd(t, e)
	// As of the model: what broker.Open takes, where a server of others stands there.
	if want := "sqs://" + e.Address() + "/?anonymous=true"; e.URL() != want || m.URL() != strings.Replace(want, e.Address(), m.Address(), 1) {
		t.Errorf("URLs %s and of the model %s, want %s", e.URL(), m.URL(), want)
	}
	sqsFaults(t, e)
}
