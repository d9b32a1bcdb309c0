package sqs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

func verdicts(rs []broker.Receipt) string {
	var b strings.Builder
	for i := range rs {
		b.WriteString(rs[i].Verdict.String()[:1])
	}
	return b.String()
}

// A lost answer is Unknown after one request; a retry of the ID is one message on
// a FIFO queue and a second one on a standard queue.
func TestLostPublishResponse(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		_, w, _, p, r := tappedEnds(t, fifo)
		w.on("SendMessageBatch", loseResponse(1))
		rs, err := p.Publish(t.Context(), messages(3, "m")...)
		wantErr(t, err, broker.ErrUnknownOutcome)
		if verdicts(rs) != "UUU" && verdicts(rs) != "000" {
			t.Errorf("verdicts %s", verdicts(rs))
		}
		if n := w.count("SendMessageBatch"); n != 1 {
			t.Errorf("%d requests, want one", n)
		}
		publish(t, p, messages(3, "m")...)
		want := map[bool]int{true: 3, false: 6}[fifo]
		if ds := receiveAll(t, r, want); len(ds) != want {
			t.Errorf("%d came, want %d", len(ds), want)
		}
		if ds := receive(t, r, 10, 100*time.Millisecond); len(ds) > 0 {
			t.Errorf("more came: %s", ids(ds))
		}
	})
}

// entries changes the lists of a batch's answer.
func failEntry(id, code string, sender bool) func(map[string]any) {
	return func(m map[string]any) {
		ok, _ := m["Successful"].([]any)
		m["Successful"] = slices.DeleteFunc(ok, func(e any) bool { return e.(map[string]any)["Id"] == id })
		bad, _ := m["Failed"].([]any)
		m["Failed"] = append(bad, map[string]any{"Id": id, "Code": code, "Message": "by the test", "SenderFault": sender})
	}
}

// The failure of one entry is that entry's alone.
func TestEntryFailure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code   string
		sender bool
		want   broker.Verdict
		kind   error
	}{
		{"InternalError", false, broker.Unknown, broker.ErrUnknownOutcome},
		{"Whatever", false, broker.Unknown, broker.ErrUnknownOutcome},
		{"InvalidMessageContents", true, broker.Refused, broker.ErrInvalid},
		{"RequestThrottled", false, broker.Refused, broker.ErrBusy},
		{"KMS.AccessDeniedException", true, broker.Refused, broker.ErrUnauthorized},
		{"Whatever", true, broker.Refused, broker.ErrRefused},
	} {
		_, w, _, p, _ := tappedEnds(t, false)
		w.on("SendMessageBatch", edit(1, failEntry("4", c.code, c.sender)))
		rs, err := p.Publish(t.Context(), messages(10, "m")...)
		wantErr(t, err, c.kind)
		for i, r := range rs {
			if i == 4 && (r.Verdict != c.want || !errors.Is(r.Err, c.kind)) || i != 4 && r.Verdict != broker.Stored {
				t.Errorf("%s: receipt %d is %v, %v", c.code, i, r.Verdict, r.Err)
			}
		}
	}
	// An entry that the answer forgets.
	_, w, _, p, _ := tappedEnds(t, false)
	w.on("SendMessageBatch", edit(1, func(m map[string]any) { m["Successful"] = m["Successful"].([]any)[1:] }))
	rs, err := p.Publish(t.Context(), messages(3, "m")...)
	wantErr(t, err, broker.ErrUnknownOutcome, errNoAnswer)
	if verdicts(rs[1:]) != "SS" || rs[0].Verdict != broker.Unknown {
		t.Errorf("verdicts %s", verdicts(rs))
	}
}

// One failed request of three fails its own messages, and nothing is sent twice.
func TestChunkFailure(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		_, w, _, p, r := tappedEnds(t, fifo)
		w.on("SendMessageBatch", refuse(1, 400, "RequestThrottled", "slow down"))
		rs, err := p.Publish(t.Context(), messages(30, "m")...)
		wantErr(t, err, broker.ErrBusy)
		good := map[string]bool{}
		for i := range rs {
			if rs[i].Verdict.OK() {
				good[fmt.Sprint("m", i)] = true
			} else if rs[i].Verdict != broker.Refused {
				t.Errorf("receipt %d is %+v", i, rs[i])
			}
		}
		if n := w.count("SendMessageBatch"); n != 3 || len(good) != 20 {
			t.Errorf("%d requests, %d taken", n, len(good))
		}
		for _, d := range receiveAll(t, r, 20) {
			if !good[d.ID] {
				t.Errorf("%q came, and its receipt says otherwise", d.ID)
			}
		}
	})
}

// What a request's failure says about its messages.
func TestRequestFailure(t *testing.T) {
	t.Parallel()
	lost := func(r *http.Request, _ func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		body(r)
		return nil, errors.New("reset")
	}
	stayed := func(r *http.Request, _ func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		return nil, errors.New("no way there")
	}
	garbled := func(r *http.Request, _ func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		resp := answer(r, 200, nil)
		resp.Body = http.NoBody
		return resp, nil
	}
	for name, c := range map[string]struct {
		strike  hook
		verdict broker.Verdict
		kind    error
	}{
		"reset":        {lost, broker.Unknown, broker.ErrUnknownOutcome},
		"not sent":     {stayed, broker.Refused, broker.ErrUnavailable},
		"empty answer": {garbled, broker.Unknown, broker.ErrUnknownOutcome},
		"internal":     {refuse(1, 500, "InternalFailure", "x"), broker.Unknown, broker.ErrUnknownOutcome},
		"odd 503":      {refuse(1, 503, "Odd", "x"), broker.Unknown, broker.ErrUnknownOutcome},
		"throttled":    {refuse(1, 503, "ThrottlingException", "x"), broker.Refused, broker.ErrBusy},
		"denied":       {refuse(1, 403, "AccessDeniedException", "x"), broker.Refused, broker.ErrUnauthorized},
		"odd 403":      {refuse(1, 403, "Odd", "x"), broker.Refused, broker.ErrUnauthorized},
		"gone":         {refuse(1, 400, "QueueDoesNotExist", "x"), broker.Refused, broker.ErrNotFound},
		"too long":     {refuse(1, 400, "BatchRequestTooLong", "x"), broker.Refused, broker.ErrTooLarge},
		"value":        {refuse(1, 400, "InvalidParameterValue", "Message must be shorter than 5 bytes."), broker.Refused, broker.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			_, w, _, p, _ := tappedEnds(t, true)
			w.on("SendMessageBatch", c.strike)
			rs, err := p.Publish(t.Context(), messages(2, "m")...)
			wantErr(t, err, c.kind)
			for _, r := range rs {
				if r.Verdict != c.verdict || !errors.Is(r.Err, c.kind) {
					t.Errorf("%v, %v", r.Verdict, r.Err)
				}
			}
			if n := w.count("SendMessageBatch"); n != 1 {
				t.Errorf("%d requests, want one", n)
			}
		})
	}
}

// A message that found no connection is Refused: it surely didn't leave.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	s, url, stop := serve()
	_ = s
	c := dialTo(t, url+"?anonymous=true")
	e := entity(t)
	ensure(t, c, e)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, message("x"))
	d := receiveOne(t, r)
	stop()
	// A connection that waited for another request may be found dead only as the
	// request is sent, which is Unknown.
	_, _ = p.Publish(t.Context(), message("y"))
	rs, err := p.Publish(t.Context(), message("y"))
	wantErr(t, err, broker.ErrUnavailable)
	if rs[0].Verdict != broker.Refused {
		t.Errorf("%v, %v", rs[0].Verdict, err)
	}
	var refused *net.OpError
	if !errors.As(err, &refused) {
		t.Errorf("the SDK's error isn't wrapped: %v", err)
	}
	// A settle that found none leaves the delivery as it was.
	if o, err := d.Ack(t.Context()); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnavailable) || errors.Is(err, broker.ErrUnknownOutcome) {
		t.Errorf("ack: %+v", o)
	}
	if o, err := d.Nack(t.Context(), 0); errors.Is(err, broker.ErrConflict) {
		t.Errorf("the handle is spent: %+v", o)
	}
}

// A publish ends with its context, its messages Unknown.
func TestPublishContext(t *testing.T) {
	t.Parallel()
	_, w, _, p, _ := tappedEnds(t, false)
	held := make(chan struct{})
	w.on("SendMessageBatch", func(r *http.Request, _ func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		body(r)
		close(held)
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	go func() {
		<-held
		cancel(reason)
	}()
	rs, err := p.Publish(ctx, message("x"))
	wantErr(t, err, broker.ErrUnknownOutcome, reason)
	if rs[0].Verdict != broker.Unknown {
		t.Errorf("%+v", rs[0])
	}
	w.on("SendMessageBatch", nil)
	rs, err = p.Publish(ctx, message("x"))
	wantErr(t, err, broker.ErrUnavailable)
	if rs[0].Verdict != broker.Refused || w.count("SendMessageBatch") != 1 {
		t.Errorf("%+v after %d requests", rs[0], w.count("SendMessageBatch"))
	}
}

// A message counts with its attributes; so does a batch.
func TestSizes(t *testing.T) {
	t.Parallel()
	_, w, _, p, r := tappedEnds(t, false)
	if l := p.Limits(); l.Body != maxMessage || l.Window != 0 {
		t.Errorf("limits %+v", l)
	}
	over := func(m broker.Message) int {
		var e entry
		m.Time = time.UnixMilli(1700000000123)
		e.set(&m, false, nil, nil)
		return e.size
	}
	fits := message("fits")
	fits.Body, fits.Time = nil, time.UnixMilli(1700000000123)
	fits.Headers = broker.Headers{{Key: "h", Value: "v"}}
	fits.Body = []byte("x")
	fits.Body = []byte(strings.Repeat("x", maxMessage-over(fits)+1))
	large := fits
	large.ID, large.Body = "larg", append([]byte("y"), fits.Body...)
	binary := fits
	binary.ID, binary.Body = "binary", make([]byte, maxMessage*4/5)
	rs, err := p.Publish(t.Context(), fits, large, binary, message("small"))
	wantErr(t, err, broker.ErrTooLarge)
	if verdicts(rs) != "SRRS" || !errors.Is(rs[1].Err, broker.ErrTooLarge) || !errors.Is(rs[2].Err, broker.ErrTooLarge) {
		t.Fatalf("verdicts %s, %v", verdicts(rs), err)
	}
	if n := w.count("SendMessageBatch"); n != 2 {
		t.Errorf("%d requests, want one for the large and one for the small", n)
	}
	for _, d := range receiveAll(t, r, 2) {
		ack(t, d)
	}
	third := messages(5, "third")
	for i := range third {
		third[i].Body = []byte(strings.Repeat("x", 400<<10))
	}
	publish(t, p, third...)
	if n := w.count("SendMessageBatch") - 2; n != 3 {
		t.Errorf("%d requests for five of 400 KiB, want 3", n)
	}
}

// Whatever goes wrong, a publisher that was closed sends nothing any more.
func TestCloseEndsPublish(t *testing.T) {
	t.Parallel()
	c, w, e, p, _ := tappedEnds(t, true)
	held := make(chan struct{})
	w.on("SendMessageBatch", func(r *http.Request, _ func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		body(r)
		close(held)
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	out := make(chan []broker.Receipt, 1)
	go func() {
		rs, _ := p.Publish(context.Background(), keyed("k", "x", "y")...)
		out <- rs
	}()
	<-held
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_ = p.Close(ctx)
	rs := <-out
	if rs[0].Verdict != broker.Unknown || rs[1].Verdict != broker.Refused {
		t.Errorf("%v, %v", rs[0], rs[1])
	}
	if n := w.count("SendMessageBatch"); n != 1 {
		t.Errorf("%d requests", n)
	}
	// What the vendor does with an empty ID is asked with the checks off.
	raw, err := driver.Unfenced(c)
	if err != nil {
		t.Fatal(err)
	}
	w.on("SendMessageBatch", nil)
	q := publisherOf(t, raw, e.Topic)
	if rs, err := q.Publish(t.Context(), broker.Message{Body: []byte("x")}); err == nil || rs[0].Verdict != broker.Refused {
		t.Errorf("an empty ID: %+v", rs[0])
	}
}
