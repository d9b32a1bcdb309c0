package sqs

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/onceline/onceline/localstack/fault"
)

// operations are what the protocol names, and what class of fault strikes them.
var operations = map[string]fault.Op{
	"SendMessage":                  fault.Publish,
	"SendMessageBatch":             fault.Publish,
	"ReceiveMessage":               fault.Receive,
	"DeleteMessage":                fault.Settle,
	"DeleteMessageBatch":           fault.Settle,
	"ChangeMessageVisibility":      fault.Settle,
	"ChangeMessageVisibilityBatch": fault.Settle,
	"CreateQueue":                  fault.Admin,
	"DeleteQueue":                  fault.Admin,
	"GetQueueUrl":                  fault.Admin,
	"ListQueues":                   fault.Admin,
	"GetQueueAttributes":           fault.Admin,
	"SetQueueAttributes":           fault.Admin,
	"PurgeQueue":                   fault.Admin,
	"ListDeadLetterSourceQueues":   fault.Admin,
	"TagQueue":                     fault.Admin,
	"UntagQueue":                   fault.Admin,
	"ListQueueTags":                fault.Admin,
	"AddPermission":                fault.Admin,
	"RemovePermission":             fault.Admin,
	"StartMessageMoveTask":         fault.Admin,
	"CancelMessageMoveTask":        fault.Admin,
	"ListMessageMoveTasks":         fault.Admin,
}

// CheckAPI says whether there is an operation of that name for faults to strike.
func CheckAPI(name string) error {
	if _, ok := operations[name]; !ok {
		return fmt.Errorf("sqs: no operation %q", name)
	}
	return nil
}

var (
	requests = sync.Pool{New: func() any { return new(request) }}
	buffers  = sync.Pool{New: func() any { return new([]byte) }}
)

// maxPooled is how large a buffer may be that is kept for the next request.
const maxPooled = 1 << 20

// ServeHTTP answers one request. A request whose answer a fault takes away is held
// until its client gives up, as a lost answer looks to one; the connection is then
// closed. Without an HTTP server around it (a handler that is called directly) the
// end is a 503 instead, as there is no connection to close.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	cut, ok := s.enter()
	if !ok {
		abort(w, r)
		return
	}
	defer s.leave()
	c := &call{ctx: r.Context(), cut: cut}
	began := time.Now()

	in := requests.Get().(*request)
	defer func() {
		in.reset()
		requests.Put(in)
	}()
	buf := buffers.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= maxPooled {
			*buf = (*buf)[:0]
			buffers.Put(buf)
		}
	}()

	err := s.decode(w, r, in)
	var verdict verdict
	if err == nil {
		verdict, err = s.strike(c, in, func() *apiError {
			var failed *apiError
			*buf, failed = s.apply(c, in, host{r}, (*buf)[:0])
			return failed
		})
	}
	if verdict.lost || !c.alive() {
		if !verdict.cut {
			c.hold()
		}
		s.traced(in, "no answer", began)
		abort(w, r)
		return
	}
	status := http.StatusOK
	if err != nil {
		status = err.status
		*buf = appendError((*buf)[:0], err)
	}
	s.traced(in, strconv.Itoa(status), began)
	h := w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(*buf))}
	var id [36]byte
	uuid(&id)
	h["X-Amzn-Requestid"] = []string{string(id[:])}
	if err != nil {
		h["X-Amzn-Query-Error"] = []string{err.code + choose(err.sender(), ";Sender", ";Receiver")}
	}
	if verdict.cut {
		h["Connection"] = []string{"close"}
	}
	w.WriteHeader(status)
	_, _ = w.Write(*buf) // a client that has gone is no concern of ours
}

var jsonType = []string{"application/x-amz-json-1.0"}

// verdict is what a fault makes of a request.
type verdict struct {
	lost bool // no answer
	cut  bool // the connection ends at once
}

// strike carries out the request with the faults that concern it.
func (s *Server) strike(c *call, in *request, apply func() *apiError) (verdict, *apiError) {
	op := operations[in.op].Ops()
	i := s.faults.Strike(op, in.op, in.concerns)
	if i == nil {
		err := apply()
		return s.handout(in, err), err
	}
	f := i.Fault()
	switch f.Kind {
	case fault.LoseRequest:
		return verdict{lost: true, cut: f.Cut}, nil
	case fault.Cut:
		return verdict{lost: true, cut: true}, nil
	case fault.Error:
		return verdict{cut: f.Cut}, injected(f.Code)
	case fault.Delay:
		if !s.sleep(c, f.Delay) {
			return verdict{lost: true, cut: true}, nil
		}
		i.Answered(true)
		err := apply()
		v := s.handout(in, err)
		if f.Cut {
			v = verdict{lost: true, cut: true}
		}
		return v, err
	case fault.LoseResponse:
		err := apply()
		if c.alive() {
			i.Answered(err == nil && in.done != 0)
		}
		return verdict{lost: true, cut: f.Cut}, err
	}
	return verdict{}, apply()
}

// handout asks for a fault that takes messages away on their way to the consumer.
func (s *Server) handout(in *request, err *apiError) verdict {
	if in.op != "ReceiveMessage" || err != nil || in.done == 0 {
		return verdict{}
	}
	i := s.faults.StrikeHandout(in.op, in.concerns)
	if i == nil {
		return verdict{}
	}
	i.Answered(true)
	return verdict{lost: true, cut: i.Fault().Cut}
}

// concerns says whether the request names the queue.
func (r *request) concerns(name string) bool {
	arn := func(t text) bool { return t.s[strings.LastIndexByte(t.s, ':')+1:] == name }
	return nameOf(r.queueURL) == name || r.queueName == name || arn(r.source) || arn(r.destination)
}

// hold waits until the client has gone or the connections end.
func (c *call) hold() {
	select {
	case <-c.gone():
	case <-c.cut:
	}
}

// sleep waits by the server's clock; false when the client has gone first.
func (s *Server) sleep(c *call, d time.Duration) bool {
	over := make(chan struct{})
	t := s.clock.AfterFunc(d, func() { close(over) })
	defer t.Stop()
	select {
	case <-over:
		return c.alive()
	case <-c.gone():
	case <-c.cut:
	}
	return false
}

// abort ends the connection without an answer.
func abort(w http.ResponseWriter, r *http.Request) {
	_, ours := w.(*recorder)
	if ours || r.Context().Value(http.ServerContextKey) != nil {
		panic(http.ErrAbortHandler)
	}
	http.Error(w, "the connection was cut", http.StatusServiceUnavailable)
}

// decode reads the request.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, in *request) *apiError {
	var src string
	if r.Body != nil {
		if r.ContentLength > maxBodyBytes {
			return tooLarge()
		}
		var err error
		if src, err = readAll(http.MaxBytesReader(w, r.Body, maxBodyBytes), r.ContentLength); err != nil {
			return tooLarge()
		}
	}
	if s.accessKey != "" {
		if err := s.authorized(r.Header.Get("Authorization")); err != nil {
			return err
		}
	}
	op, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
	if _, known := operations[op]; !ok || !known || r.Method != http.MethodPost {
		return unknownOperation()
	}
	in.op = op
	in.trace = r.Header.Get("X-Amzn-Trace-Id")
	return in.decode(src)
}

// readAll reads the body into a string, copying it once.
func readAll(r io.Reader, size int64) (string, error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	if cap(*buf) < 32<<10 {
		*buf = make([]byte, 32<<10)
	}
	chunk := (*buf)[:cap(*buf)]
	var b strings.Builder
	if size > 0 && size <= maxPooled {
		b.Grow(int(size))
	}
	for {
		n, err := r.Read(chunk)
		b.Write(chunk[:n])
		if err == io.EOF {
			*buf = chunk[:0]
			return b.String(), nil
		}
		if err != nil {
			*buf = chunk[:0]
			return "", err
		}
	}
}

// authorized looks for the access key in the credential scope of a signature.
func (s *Server) authorized(header string) *apiError {
	_, scope, ok := strings.Cut(header, "Credential=")
	if !ok {
		return failure(http.StatusForbidden, coral+"MissingAuthenticationTokenException", "MissingAuthenticationToken", "Request is missing Authentication Token")
	}
	if key, _, _ := strings.Cut(scope, "/"); key != s.accessKey {
		return failure(http.StatusForbidden, coral+"UnrecognizedClientException", "InvalidClientTokenId", "The security token included in the request is invalid.")
	}
	return nil
}

func (s *Server) traced(in *request, status string, began time.Time) {
	if s.trace == nil || s.traceWhen != nil && !s.traceWhen() {
		return
	}
	name := nameOf(in.queueURL)
	if name == "" {
		name = in.queueName
	}
	s.trace(fmt.Sprintf("%s %s %d %s %s", choose(in.op == "", "?", in.op), choose(name == "", "-", name), in.done, status, time.Since(began).Round(time.Microsecond)))
}

// host tells by which URL the client reached us.
type host struct{ r *http.Request }

func (h host) url(s *Server, queue string) string {
	name := h.r.Host
	if name == "" {
		name = h.r.URL.Host
	}
	return choose(h.r.TLS != nil, "https://", "http://") + name + "/" + s.account + "/" + queue
}

// Transport returns an [http.RoundTripper] that calls the server in this process,
// without a connection: what a client needs inside testing/synctest. A request
// whose context ends returns with its error, one that is cut with [io.EOF].
func (s *Server) Transport() http.RoundTripper { return transport{s} }

type transport struct{ s *Server }

// RoundTrip is part of http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := &recorder{header: http.Header{}}
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			if resp, err = nil, context.Cause(r.Context()); err == nil {
				err = io.EOF
			}
		default:
			panic(p)
		}
	}()
	t.s.ServeHTTP(w, r)
	return &http.Response{
		Status: strconv.Itoa(w.status) + " " + http.StatusText(w.status), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: w.header, Request: r,
		Body: io.NopCloser(strings.NewReader(w.body.String())), ContentLength: int64(w.body.Len()),
	}, nil
}

// recorder is the ResponseWriter of transport.
type recorder struct {
	header http.Header
	status int
	body   strings.Builder
}

// Header is part of http.ResponseWriter.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader is part of http.ResponseWriter.
func (w *recorder) WriteHeader(status int) { w.status = status }

// Write is part of http.ResponseWriter.
func (w *recorder) Write(b []byte) (int, error) { return w.body.Write(b) }
