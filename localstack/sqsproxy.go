package localstack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/onceline/onceline/localstack/fault"
)

// sqsFront is an HTTP server between the proxy and a server of the SQS API. It
// carries out faults as package localstack/sqs does.
type sqsFront struct {
	address   string
	faults    *fault.Set
	trace     *tracer
	listener  *pipeListener
	server    *http.Server
	transport *http.Transport
	ctx       context.Context // ends with the front
	end       context.CancelFunc
	wg        sync.WaitGroup // of Serve and the requests

	mu     sync.Mutex // no request enters after close, which waits for them
	closed bool
}

// sqsMaxBody bounds a request or an answer in bytes: ten messages of 1 MiB, and
// what they are wrapped in.
const sqsMaxBody = 16 << 20

func newSQSFront(address string, faults *fault.Set, trace *tracer) *sqsFront {
	f := &sqsFront{address: address, faults: faults, trace: trace, listener: newPipeListener(&net.TCPAddr{}), transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}}
	f.ctx, f.end = context.WithCancel(context.Background())
	f.server = &http.Server{Handler: f, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
	f.wg.Go(func() { _ = f.server.Serve(f.listener) }) // it ends by close
	return f
}

func (f *sqsFront) dial(client net.Addr) (net.Conn, error) { return f.listener.dial(client) }

func (f *sqsFront) close(ctx context.Context) error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.end()
	err := f.server.Close()
	f.transport.CloseIdleConnections()
	return errors.Join(err, waitFor(ctx, "requests to SQS", func() { f.wg.Wait(); f.listener.conns.Wait() }))
}

// sqsRequest is a request of a client.
type sqsRequest struct {
	op, queue string
	body      []byte
}

// ServeHTTP passes a request on, with the faults that concern it.
func (f *sqsFront) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	f.wg.Add(1)
	f.mu.Unlock()
	defer f.wg.Done()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, sqsMaxBody))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	in := parseSQS(r, body)
	if f.trace.on() {
		f.trace.line(fmt.Sprintf("%s %s, %d bytes", in.op, in.queue, len(body)))
	}
	concerns := func(name string) bool { return name == in.queue }
	i := f.faults.Strike(sqsOps(in.op), in.op, concerns)
	if i == nil {
		f.pass(w, r, &in, concerns, false)
		return
	}
	what := i.Fault()
	switch what.Kind {
	case LoseRequest:
		f.hold(r, what.Cut)
	case Cut:
		f.hold(r, true)
	case Error:
		sqsRefuse(w, what)
	case LoseResponse:
		// The client may be gone when the answer comes.
		resp, answer, err := f.forward(f.ctx, r, &in)
		i.Answered(err == nil && sqsApplied(in.op, resp.StatusCode, answer))
		f.hold(r, what.Cut)
	case Delay:
		t := time.NewTimer(what.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
		i.Answered(true)
		f.pass(w, r, &in, concerns, what.Cut)
	}
}

// pass passes a request on, and its answer back unless it is to be cut.
func (f *sqsFront) pass(w http.ResponseWriter, r *http.Request, in *sqsRequest, concerns func(string) bool, cut bool) {
	resp, answer, err := f.forward(r.Context(), r, in)
	if err != nil || cut {
		panic(http.ErrAbortHandler) // the server is gone, or the client is
	}
	if in.op == "ReceiveMessage" && (bytes.Contains(answer, []byte(`"MessageId"`)) || bytes.Contains(answer, []byte("<MessageId>"))) {
		if i := f.faults.StrikeHandout(in.op, concerns); i != nil {
			i.Answered(true)
			f.hold(r, i.Fault().Cut)
		}
	}
	h := w.Header()
	for name, values := range resp.Header {
		if name != "Content-Length" && name != "Transfer-Encoding" && name != "Connection" {
			h[name] = values
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(answer)))
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(answer) // a client that has gone is no concern of ours
}

// hold leaves a client without an answer until it gives up, or without its
// connection. It does not return.
func (f *sqsFront) hold(r *http.Request, cut bool) {
	if !cut {
		select {
		case <-r.Context().Done():
		case <-f.ctx.Done():
		}
	}
	panic(http.ErrAbortHandler)
}

// forward sends a request to the server and returns its whole answer.
func (f *sqsFront) forward(ctx context.Context, r *http.Request, in *sqsRequest) (*http.Response, []byte, error) {
	out, err := http.NewRequestWithContext(ctx, r.Method, "http://"+f.address+r.URL.RequestURI(), bytes.NewReader(in.body))
	if err != nil {
		return nil, nil, err
	}
	out.Header = r.Header.Clone()
	out.Header.Del("Connection")
	out.Host = r.Host
	resp, err := f.transport.RoundTrip(out)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, sqsMaxBody))
	return resp, answer, err
}

// parseSQS reads the operation and the queue of a request, in either protocol.
func parseSQS(r *http.Request, body []byte) sqsRequest {
	in := sqsRequest{body: body}
	var names struct{ QueueUrl, QueueName string }
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		in.op = target[strings.LastIndexByte(target, '.')+1:]
		_ = json.Unmarshal(body, &names) // what names no queue matches none
	} else if form, err := url.ParseQuery(string(body)); err == nil {
		in.op, names.QueueUrl, names.QueueName = form.Get("Action"), form.Get("QueueUrl"), form.Get("QueueName")
		if names.QueueUrl == "" {
			names.QueueUrl = r.URL.Path
		}
	}
	if in.queue = names.QueueName; in.queue == "" {
		in.queue = names.QueueUrl[strings.LastIndexByte(names.QueueUrl, '/')+1:]
	}
	return in
}

// sqsApplied says whether an answer reports that anything was done.
func sqsApplied(op string, status int, answer []byte) bool {
	if status != http.StatusOK {
		return false
	}
	if !strings.HasSuffix(op, "Batch") {
		return true
	}
	var batch struct{ Successful []struct{} }
	if json.Unmarshal(answer, &batch) != nil { // XML
		return bytes.Contains(answer, []byte("ResultEntry>"))
	}
	return len(batch.Successful) > 0
}

// sqsRefuse answers with the error of a fault.
func sqsRefuse(w http.ResponseWriter, f Fault) {
	status, code, sender := f.Code, "", "Receiver"
	switch status {
	case 0, http.StatusServiceUnavailable:
		status, code = http.StatusServiceUnavailable, "ServiceUnavailable"
	case http.StatusInternalServerError:
		code = "InternalFailure"
	case http.StatusTooManyRequests:
		code = "ThrottlingException"
	case http.StatusForbidden:
		code, sender = "RequestThrottled", "Sender"
	case http.StatusUnauthorized:
		status, code, sender = http.StatusForbidden, "AccessDenied", "Sender"
	case http.StatusNotFound:
		status, code, sender = http.StatusBadRequest, "AWS.SimpleQueueService.NonExistentQueue", "Sender"
	case http.StatusBadRequest:
		code, sender = "InvalidParameterValue", "Sender"
	default:
		code = "Injected" + strconv.Itoa(status)
	}
	kind := strings.TrimPrefix(code, "AWS.SimpleQueueService.")
	if kind == "NonExistentQueue" {
		kind = "QueueDoesNotExist"
	}
	h := w.Header()
	h.Set("Content-Type", "application/x-amz-json-1.0")
	h.Set("X-Amzn-Query-Error", code+";"+sender)
	if f.Cut {
		h.Set("Connection", "close")
	}
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"__type":"com.amazonaws.sqs#%s","message":"injected fault"}`, kind)
}

// sqsOps says which class an operation belongs to, as in package localstack/sqs.
func sqsOps(op string) fault.Ops {
	switch op {
	case "SendMessage", "SendMessageBatch":
		return Publish.Ops()
	case "ReceiveMessage":
		return Receive.Ops()
	case "DeleteMessage", "DeleteMessageBatch", "ChangeMessageVisibility", "ChangeMessageVisibilityBatch":
		return Settle.Ops()
	}
	return Admin.Ops()
}

// sqsAPIs are the operations of SQS.
var sqsAPIs = []string{
	"AddPermission", "CancelMessageMoveTask", "ChangeMessageVisibility", "ChangeMessageVisibilityBatch", "CreateQueue",
	"DeleteMessage", "DeleteMessageBatch", "DeleteQueue", "GetQueueAttributes", "GetQueueUrl", "ListDeadLetterSourceQueues",
	"ListMessageMoveTasks", "ListQueueTags", "ListQueues", "PurgeQueue", "ReceiveMessage", "RemovePermission", "SendMessage",
	"SendMessageBatch", "SetQueueAttributes", "StartMessageMoveTask", "TagQueue", "UntagQueue",
}

func checkSQSAPI(api string) error {
	if !slices.Contains(sqsAPIs, api) {
		return fmt.Errorf("localstack: fault: SQS has no operation %q", api)
	}
	return nil
}
