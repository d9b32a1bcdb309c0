package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/localstack"
)

func TestPublishResponseLost(t *testing.T) {
	t.Parallel()
	s, _, _, p, _ := faultyEnds(t)
	i := inject(t, s, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Times: 1})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_ = i.WaitApplied(ctx)
		cancel()
	}()
	ms := messages(5, "m")
	rs, err := p.Publish(ctx, ms...)
	wantErr(t, err, broker.ErrUnknownOutcome, context.Canceled)
	unknown := 0
	for k, r := range rs {
		if r.Verdict == broker.Unknown {
			unknown++
			wantErr(t, r.Err, broker.ErrUnknownOutcome)
		} else if r.Verdict != broker.Stored {
			t.Errorf("receipt %d: %+v", k, r)
		}
	}
	// The others may be caught by the cancel too, never the other way round.
	if unknown == 0 {
		t.Error("no receipt is unknown")
	}
	for k, r := range publish(t, p, ms...) {
		if r.Position.Offset != uint64(k+1) || r.Verdict != broker.Duplicate {
			t.Errorf("retried %d: %+v", k, r)
		}
	}
}

// A connection that is cut fails the publishes that wait, at once and not at
// the end of their context.
func TestPublishCut(t *testing.T) {
	t.Parallel()
	for _, f := range []localstack.Fault{
		{Op: localstack.Publish, Kind: localstack.LoseResponse, Times: 1, Cut: true},
		{Op: localstack.Publish, Kind: localstack.Cut, Times: 1},
	} {
		t.Run(f.Kind.String(), func(t *testing.T) {
			s, c, _, p, _ := faultyEnds(t)
			inject(t, s, f)
			begin := time.Now()
			rs, err := p.Publish(t.Context(), message("x"))
			wantErr(t, err, broker.ErrUnknownOutcome)
			if took := time.Since(begin); rs[0].Verdict != broker.Unknown || took > time.Second {
				t.Errorf("%v after %v", rs[0].Verdict, took)
			}
			connected(t, c)
			want := broker.Verdict(broker.Stored)
			if f.Kind == localstack.LoseResponse {
				want = broker.Duplicate
			}
			until(t, "the retry", func() bool {
				rs, err := p.Publish(t.Context(), message("x"))
				if err == nil && rs[0].Verdict != want {
					t.Fatalf("retried: %v, want %v", rs[0].Verdict, want)
				}
				return err == nil
			})
		})
	}
}

// Each error that the server can answer has its kind and verdict.
func TestPublishErrors(t *testing.T) {
	t.Parallel()
	s, c, e, p, _ := faultyEnds(t, func(e *broker.Entity) { e.MaxBody = 2000 })
	for code, want := range map[int]struct {
		kind    error
		verdict broker.Verdict
	}{
		10054: {broker.ErrTooLarge, broker.Refused}, 10071: {broker.ErrConflict, broker.Refused}, 10008: {broker.ErrUnavailable, broker.Refused},
		10158: {broker.ErrUnknownOutcome, broker.Unknown}, 10167: {broker.ErrBusy, broker.Refused}, 10003: {broker.ErrRefused, broker.Refused},
		10059: {broker.ErrUnavailable, broker.Refused}, 10023: {broker.ErrBusy, broker.Refused}, 10005: {broker.ErrUnavailable, broker.Refused},
	} {
		i := inject(t, s, localstack.Fault{Op: localstack.Publish, Kind: localstack.Error, Code: code, Times: 1})
		rs, err := p.Publish(t.Context(), message(fmt.Sprint(code)), message(fmt.Sprint(code, "other")))
		if !errors.Is(err, want.kind) || rs[0].Verdict != want.verdict || rs[1].Verdict != broker.Stored || i.Hits() != 1 {
			t.Errorf("%d: %v, %v; the other %v", code, rs[0].Verdict, err, rs[1].Verdict)
		}
	}
	// The same of a real server, past the fence that would have refused it here.
	raw, err := driver.Unfenced(c)
	if err != nil {
		t.Fatal(err)
	}
	big := broker.Message{ID: "big", Body: make([]byte, 4000)}
	rs, err := publisherOf(t, raw, e.Topic).Publish(t.Context(), message("a"), big, message("b"))
	wantErr(t, err, broker.ErrTooLarge)
	if rs[0].Verdict != broker.Stored || rs[1].Verdict != broker.Refused || rs[2].Verdict != broker.Stored {
		t.Errorf("verdicts %v %v %v", rs[0].Verdict, rs[1].Verdict, rs[2].Verdict)
	}
}

// While the server is down nothing is taken, and nothing is sent later: neither
// by Dial's client nor by one with a reconnect buffer.
func TestNothingIsBuffered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := start(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() }) // after its clients
	url := s.ClientURL()
	nc, err := natsgo.Connect(url, natsgo.ReconnectWait(20*time.Millisecond), natsgo.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	buffered, err := New(nc)
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, buffered)
	dialed := dialTo(t, url)
	e := entity(t)
	ensure(t, dialed, e)
	pubs := []broker.Publisher{publisherOf(t, dialed, e.Topic), publisherOf(t, buffered, e.Topic)}
	rcv := receiverOf(t, buffered, e.Subscription)
	publish(t, pubs[0], message("before"))
	d := receiveOne(t, rcv)
	address := s.Addr().String()
	s.Shutdown()
	s.WaitForShutdown()
	disconnected(t, dialed)
	disconnected(t, buffered)
	for _, p := range pubs {
		rs, err := p.Publish(t.Context(), message("during"))
		wantErr(t, err, broker.ErrUnavailable)
		if rs[0].Verdict != broker.Refused {
			t.Errorf("%v", rs[0].Verdict)
		}
	}
	if o, _ := d.Ack(t.Context()); o.State != broker.LeaseLost {
		t.Errorf("ack: %v", o.State)
	}
	wantErr(t, dialed.Ensure(t.Context(), e), broker.ErrUnavailable)
	// The same while the disconnect has not been noticed here.
	late := connOf(t, buffered)
	late.link.Store(&link{gone: make(chan struct{})})
	rs, err := pubs[1].Publish(t.Context(), message("during"))
	if wantErr(t, err, broker.ErrUnavailable); rs[0].Verdict != broker.Refused {
		t.Errorf("%v", rs[0].Verdict)
	}
	late.link.Store(nil)
	if n, _ := nc.Buffered(); n > 0 {
		t.Errorf("%d bytes wait to be sent later", n)
	}
	// A connection of another test may have got the port meanwhile.
	until(t, "the port", func() bool {
		l, err := net.Listen("tcp", address)
		return err == nil && l.Close() == nil
	})
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	again, err := start(dir, number)
	if err != nil {
		t.Fatal(err)
	}
	s = again
	connected(t, dialed)
	connected(t, buffered)
	if n := stored(t, dialed, e.Topic); n != 1 {
		t.Errorf("%d messages stored", n)
	}
}

// The same for a publish.
func TestCloseEndsPublish(t *testing.T) {
	t.Parallel()
	s, _, _, p, _ := faultyEnds(t)
	i := inject(t, s, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Times: 1})
	out := make(chan []broker.Receipt, 1)
	go func() {
		rs, _ := p.Publish(context.Background(), message("x"))
		out <- rs
	}()
	applied(t, i)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_ = p.Close(ctx)
	select {
	case rs := <-out:
		if rs[0].Verdict != broker.Unknown || !errors.Is(rs[0].Err, broker.ErrUnknownOutcome) {
			t.Errorf("%+v", rs[0])
		}
	case <-time.After(2 * time.Second):
		t.Fatal("the publish goes on")
	}
}

// A publish that was given up makes room for those that wait behind it.
func TestWindowAfterLostAnswer(t *testing.T) {
	t.Parallel()
	s := faulty(t)
	c := dialTo(t, s.URL(), MaxInFlight(1))
	e := entity(t)
	ensure(t, c, e)
	p := publisherOf(t, c, e.Topic)
	i := inject(t, s, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Times: 1})
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan error, 1)
	go func() {
		_, err := p.Publish(ctx, message("lost"))
		out <- err
	}()
	applied(t, i)
	behind := make(chan error, 1)
	go func() {
		_, err := p.Publish(t.Context(), messages(3, "m")...)
		behind <- err
	}()
	inner := connOf(t, c)
	until(t, "the second to wait", func() bool {
		inner.mux.mu.Lock()
		defer inner.mux.mu.Unlock()
		return len(inner.mux.open) == 2
	})
	select {
	case err := <-behind:
		t.Fatalf("the window of one let more through: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	wantErr(t, <-out, broker.ErrUnknownOutcome)
	select {
	case err := <-behind:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the second waits for ever")
	}
}

// Nobody takes a message: it is unroutable if there is no stream, and the broker
// is unavailable if there is one, which is without a leader then.
func TestPublishToNobody(t *testing.T) {
	t.Parallel()
	s, c, e, p, _ := faultyEnds(t)
	i := inject(t, s, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseRequest, Times: 1})
	type answer struct {
		rs  []broker.Receipt
		err error
	}
	out := make(chan answer, 1)
	go func() {
		rs, err := p.Publish(t.Context(), message("x"))
		out <- answer{rs, err}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := i.WaitHit(ctx); err != nil {
		t.Fatal(err)
	}
	// What a server without a leader for the stream answers.
	mux := connOf(t, c).mux
	mux.receive(&natsgo.Msg{Subject: mux.prefix + strconv.FormatUint(mux.last, 36) + "-0", Header: natsgo.Header{"Status": {"503"}}})
	a := <-out
	if wantErr(t, a.err, broker.ErrUnavailable); a.rs[0].Verdict != broker.Refused {
		t.Errorf("%v", a.rs[0].Verdict)
	}
	if err := c.Delete(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	rs, err := p.Publish(t.Context(), message("x"), message("y"))
	wantErr(t, err, broker.ErrUnroutable)
	if rs[0].Verdict != broker.Refused || rs[1].Verdict != broker.Refused || !errors.Is(rs[1].Err, broker.ErrUnroutable) {
		t.Errorf("%+v", rs)
	}
}
