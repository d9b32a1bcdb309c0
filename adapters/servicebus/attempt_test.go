package servicebus

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack/fault"
	emulator "github.com/onceline/onceline/localstack/servicebus"
	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// tamper is a connection that can slip a frame in between those of the service.
type tamper struct {
	net.Conn
	in  *io.PipeReader
	out *io.PipeWriter

	mu       sync.Mutex // held over each frame to the client
	armed    atomic.Bool
	transfer chan uint16 // the channel of a transfer that the client sent when armed
}

func newTamper(c net.Conn) *tamper {
	t := &tamper{Conn: c, transfer: make(chan uint16, 1)}
	t.in, t.out = io.Pipe()
	go func() { // ends with the connection
		for {
			frame := make([]byte, 8)
			if _, err := io.ReadFull(c, frame); err != nil {
				_ = t.out.CloseWithError(err)
				return
			}
			if !bytes.HasPrefix(frame, []byte("AMQP")) {
				rest := make([]byte, binary.BigEndian.Uint32(frame)-8)
				if _, err := io.ReadFull(c, rest); err != nil {
					_ = t.out.CloseWithError(err)
					return
				}
				frame = append(frame, rest...)
			}
			t.slip(frame)
		}
	}()
	return t
}

func (t *tamper) slip(frame []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = t.out.Write(frame)
}

func (t *tamper) Read(b []byte) (int, error) { return t.in.Read(b) }

func (t *tamper) Write(b []byte) (int, error) {
	if len(b) > 11 && b[8] == 0 && b[9] == 0x53 && b[10] == amqp.CodeTransfer && t.armed.CompareAndSwap(true, false) {
		t.transfer <- binary.BigEndian.Uint16(b[6:])
	}
	return t.Conn.Write(b)
}

func (t *tamper) Close() error {
	_ = t.in.Close()
	return t.Conn.Close()
}

// The service detaches a sender's link with a transfer unanswered. The SDK sends
// once more in this case, whatever its retry options; here nothing is sent twice.
func TestSendIsNotRepeated(t *testing.T) {
	t.Parallel()
	n := start(t)
	var last atomic.Pointer[tamper]
	c := n.dial(t, Dialer(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		nc, err := d.DialContext(ctx, "tcp", n.host)
		if err != nil {
			return nil, err
		}
		last.Store(newTamper(nc))
		return last.Load(), nil
	}))
	name := entity().Topic
	if err := n.CreateQueue(name, emulator.QueueProperties{}); err != nil { // without duplicate detection
		t.Fatal(err)
	}
	p := publisherOf(t, c, name)
	wire := last.Load()
	detach := func(what string, send func() error) error {
		t.Helper()
		i := n.inject(t, fault.Fault{Op: fault.Publish, Kind: fault.LoseResponse, Times: 1})
		wire.armed.Store(true)
		out := make(chan error, 1)
		go func() { out <- send() }()
		channel := <-wire.transfer
		applied(t, i)
		b, at := amqp.BeginFrame(nil, amqp.FrameAMQP, channel)
		b = amqp.AppendClosing(b, amqp.CodeDetach, 0, amqp.Error{Condition: "amqp:link:detach-forced", Description: "idle"})
		wire.slip(amqp.EndFrame(b, at))
		select {
		case err := <-out:
			return err
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: no end", what)
			return nil
		}
	}
	err := detach("publish", func() error {
		rs, err := p.Publish(t.Context(), message("x"))
		if rs[0].Verdict != broker.Unknown {
			t.Errorf("%v", rs[0])
		}
		return err
	})
	wantErr(t, err, broker.ErrUnknownOutcome)
	if k := n.counts(t, name); k.Active != 1 {
		t.Errorf("the service has %+v, want the message once", k)
	}
	publish(t, p, message("y")) // over a new link
	// The SDK by itself, to show that there is something to suppress.
	var sender *azservicebus.Sender
	if !p.As(&sender) {
		t.Fatal("no sender")
	}
	err = detach("the SDK", func() error {
		return sender.SendMessage(t.Context(), &azservicebus.Message{Body: []byte("z")}, nil)
	})
	if k := n.counts(t, name); err != nil || k.Active != 4 {
		t.Errorf("the SDK: %v, the service has %+v, want the third message twice", err, k)
	}
}

// TestAttemptPlaces shows that the places at which an attempt looks are those of
// the SDK and AMQP library in use.
func TestAttemptPlaces(t *testing.T) {
	t.Parallel()
	n, c, e, p, r := ends(t)
	inner := connOf(t, c)
	publish(t, p, messages(3, "m")...)
	ds := receiveAll(t, r, 3)
	run := func(what string, want place, call func(a *attempt) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		o := &outer{soft: ctx, life: t.Context()}
		defer o.end()
		a := &attempt{Context: ctx, outer: o}
		begin := time.Now()
		err := call(a)
		if !a.has(want) || time.Since(begin) > 50*time.Millisecond+grace/2 {
			t.Errorf("%s: marks %b, want %b; %v after %v", what, a.marks.Load(), want, err, time.Since(begin))
		}
	}
	var sender *azservicebus.Sender
	var rcv *azservicebus.Receiver
	if !p.As(&sender) || !r.As(&rcv) {
		t.Fatal("no handles")
	}
	sdk := func(i int) (m *azservicebus.ReceivedMessage) {
		if !ds[i].As(&m) {
			t.Fatal("no message")
		}
		return m
	}
	lost := n.inject(t, fault.Fault{Op: fault.Any, Kind: fault.LoseRequest})
	run("send", handing, func(a *attempt) error {
		return sender.SendMessage(a, &azservicebus.Message{Body: []byte("x")}, nil)
	})
	run("settle", disposing, func(a *attempt) error { return rcv.CompleteMessage(a, sdk(0), nil) })
	run("management", asking, func(a *attempt) error { return rcv.CompleteMessage(a, bare(sdk(1)), nil) })
	run("receive", taking, func(a *attempt) error {
		_, err := rcv.ReceiveMessages(a, 1, nil)
		return err
	})
	run("open", opening|asking, func(a *attempt) error {
		s, err := inner.client.NewSender(e.Topic, nil)
		if err != nil {
			return err
		}
		_, err = s.NewMessageBatch(a, nil)
		return errors.Join(err, s.Close(context.Background()))
	})
	lost.Remove()
	n.inject(t, fault.Fault{Op: fault.Settle, Kind: fault.Error, Code: 503, Times: 1})
	run("sleep", sleeping, func(a *attempt) error {
		err := rcv.CompleteMessage(a, sdk(2), nil)
		if !errors.Is(err, errAttemptOver) {
			t.Errorf("the SDK returned %v", err)
		}
		return err
	})
	// These two can't be met on purpose; TestEndedContextKillsNoConnection and the
	// tests of sessions rest on them.
	const sb = "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	if placeOf("github.com/Azure/go-amqp.(*Conn).getWriteTimeout") != writing || placeOf(sb+".(*SessionReceiver).newLink") != accepting {
		t.Error("writing, accepting")
	}
}

// The wait for the rest of a pull's messages ends with the caller's context, at once
// and with what came, and takes no context of its own around that.
func TestRestOfPull(t *testing.T) {
	t.Parallel()
	_, _, _, p, r := ends(t)
	var rcv *azservicebus.Receiver
	if !r.As(&rcv) {
		t.Fatal("no handle")
	}
	ctx, cancel := context.WithCancel(t.Context())
	o := &outer{soft: ctx, life: t.Context()}
	defer o.end()
	a := &attempt{Context: ctx, outer: o}
	came := make(chan int, 1)
	go func() {
		ms, _ := rcv.ReceiveMessages(a, 2, &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: time.Minute})
		came <- len(ms)
	}()
	until(t, "the pull", func() bool { return a.has(taking) })
	publish(t, p, message("x"))
	until(t, "the rest", func() bool { return a.has(shared) })
	begin := time.Now()
	cancel()
	if n, took := <-came, time.Since(begin); n != 1 || took > grace/2 || o.made.Load() {
		t.Errorf("%d came after %v; an outer end: %v", n, took, o.made.Load())
	}
}

// A context that has ended keeps no frame from being written: the session that
// isn't begun would be ended later, and the connection with it.
func TestEndedContextKillsNoConnection(t *testing.T) {
	t.Parallel()
	var broken atomic.Int32 // frames for sessions that there aren't
	n := start(t, emulator.Trace(func(line string) {
		if strings.Contains(line, "which has no session") {
			broken.Add(1)
		}
	}))
	c, e := n.dial(t), entity()
	n.makes(t, e)
	p := publisherOf(t, c, e.Topic)
	for i := range 30 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Duration(i)*50*time.Microsecond, cancel)
		if r, err := c.OpenReceiver(ctx, e.Subscription); err == nil {
			closing(t, r)
		}
		cancel()
		publish(t, p, message("x")) // fails if its connection is closed
	}
	if n := broken.Load(); n > 0 {
		t.Errorf("%d frames for sessions that there aren't", n)
	}
}
