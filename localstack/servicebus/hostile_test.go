package servicebus_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/onceline/onceline/localstack/fault"
	"github.com/onceline/onceline/localstack/servicebus"
	wire "github.com/onceline/onceline/localstack/servicebus/amqp"
)

// recorded keeps what a client writes.
type recorded struct {
	net.Conn
	mu  sync.Mutex
	out []byte
}

func (r *recorded) Write(b []byte) (int, error) {
	r.mu.Lock()
	r.out = append(r.out, b...)
	r.mu.Unlock()
	return r.Conn.Write(b)
}

// record returns what the vendor's SDK writes when it sends, receives, settles and
// asks.
func record(t testing.TB) []byte {
	s := servicebus.New()
	defer s.Close(t.Context())
	create(t, s, "q", servicebus.QueueProperties{})
	create(t, s, "ss", servicebus.QueueProperties{RequiresSession: true})
	var rec *recorded
	c, err := azservicebus.NewClientFromConnectionString("Endpoint=sb://pipe;SharedAccessKeyName=k;SharedAccessKey=a2V5", &azservicebus.ClientOptions{
		NewWebSocketConn: func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			near, far := net.Pipe()
			s.ServeConn(far)
			rec = &recorded{Conn: near}
			return rec, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	sender := must(c.NewSender("q", nil))(t)
	send(t, sender, message("a", "x"), message("b", "y"))
	must(sender.ScheduleMessages(ctx, []*azservicebus.Message{message("c", "z")}, time.Now().Add(time.Hour), nil))(t)
	r := must(c.NewReceiverForQueue("q", nil))(t)
	ms := receive(t, r, 2)
	r.RenewMessageLock(ctx, ms[0], nil)
	r.CompleteMessage(ctx, ms[0], nil)
	r.DeferMessage(ctx, ms[1], nil)
	r.ReceiveDeferredMessages(ctx, []int64{*ms[1].SequenceNumber}, nil)
	c.Close(ctx)
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.out
}

// feed writes b to a server as a client's whole conversation, and fails if the
// server can't be closed after it.
func feed(t testing.TB, b []byte, options ...servicebus.Option) {
	s := servicebus.New(options...)
	create(t, s, "q", servicebus.QueueProperties{DuplicateDetection: true})
	create(t, s, "ss", servicebus.QueueProperties{RequiresSession: true})
	near, far := net.Pipe()
	s.ServeConn(far)
	drained := make(chan struct{})
	go func() {
		io.Copy(io.Discard, near)
		close(drained)
	}()
	near.SetWriteDeadline(time.Now().Add(5 * time.Second))
	near.Write(b)
	near.Close()
	<-drained
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func FuzzConnection(f *testing.F) {
	b := record(f)
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add([]byte("GET /q HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("PUT /q2 HTTP/1.1\r\nHost: x\r\nContent-Length: 57\r\n\r\n<entry><content><QueueDescription/></content></entry>     "))
	f.Fuzz(func(t *testing.T, b []byte) { feed(t, b) })
}

// conversation is a raw client, to do what no SDK would.
type conversation struct {
	t  *testing.T
	nc net.Conn
	fr *wire.FrameReader
}

func converse(t *testing.T, s *servicebus.Server) *conversation {
	near, far := net.Pipe()
	s.ServeConn(far)
	near.SetDeadline(time.Now().Add(5 * time.Second))
	t.Cleanup(func() { near.Close() })
	c := &conversation{t, near, wire.NewFrameReader(near, 1<<20)}
	c.write(wire.AppendProtocol(nil, wire.ProtocolAMQP))
	if _, err := c.fr.Protocol(); err != nil {
		t.Fatal(err)
	}
	c.frame(0, wire.Open{Container: "raw", MaxFrameSize: 600}.Append(nil))
	c.expect(wire.CodeOpen)
	c.frame(1, wire.Begin{IncomingWindow: 100, OutgoingWindow: 100}.Append(nil))
	c.expect(wire.CodeBegin)
	return c
}

func (c *conversation) write(b []byte) {
	if _, err := c.nc.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

func (c *conversation) frame(channel uint16, body []byte) {
	b, at := wire.BeginFrame(nil, wire.FrameAMQP, channel)
	c.write(wire.EndFrame(append(b, body...), at))
}

// expect reads frames until one of the given code, and returns its fields and what
// is behind them.
func (c *conversation) expect(want uint64) (wire.Fields, []byte) {
	c.t.Helper()
	for {
		f, err := c.fr.Next()
		if err != nil {
			c.t.Fatalf("waiting for 0x%x: %v", want, err)
		}
		if len(f.Body) == 0 {
			continue
		}
		r := wire.NewReader(append([]byte(nil), f.Body...))
		code, fields, err := r.Composite()
		if err != nil {
			c.t.Fatal(err)
		}
		if code == want {
			return fields, r.Rest()
		}
		if code == wire.CodeClose {
			c.t.Fatalf("waiting for 0x%x: closed: %v", want, fields.Any())
		}
	}
}

func address(code uint64, name string) wire.Raw {
	return wire.AppendValue(nil, wire.Described{Descriptor: code, Value: wire.List{name}})
}

func (c *conversation) attach(handle uint32, role bool, queue string) {
	a := wire.Attach{Name: queue, Handle: handle, Role: role, ReceiverSettle: 1, Source: address(0x28, queue), Target: address(0x29, queue)}
	c.frame(1, a.Append(nil))
	c.expect(wire.CodeAttach)
}

// TestWindow: a message of more frames than the client's window takes comes in
// parts, each as the window allows, and nothing between them.
func TestWindow(t *testing.T) {
	s, connection := start(t)
	create(t, s, "q", servicebus.QueueProperties{})
	body := strings.Repeat("x", 5000)
	send(t, must(dial(t, connection).NewSender("q", nil))(t), message("a", body), message("b", "y"))
	c := converse(t, s)
	c.attach(3, wire.RoleReceiver, "q")
	next := uint32(1)
	c.frame(1, wire.Flow{NextIncomingID: &next, IncomingWindow: 2, Handle: 3, HasHandle: true, LinkCredit: 10}.Append(nil))
	var whole []byte
	frames := 0
	for done := false; !done; frames++ {
		fields, payload := c.expect(wire.CodeTransfer)
		tr, err := wire.ReadTransfer(&fields)
		if err != nil {
			t.Fatal(err)
		}
		whole = append(whole, payload...)
		if done = !tr.More; !done && frames%2 == 1 {
			next += 2
			c.frame(1, wire.Flow{NextIncomingID: &next, IncomingWindow: 2}.Append(nil))
		}
	}
	var m amqp.Message
	if err := m.UnmarshalBinary(whole); err != nil || string(m.GetData()) != body || frames < 9 {
		t.Errorf("%d frames, %d bytes, %v", frames, len(m.GetData()), err)
	}
}

// TestReleaseIsNoSettle: a fault on settles lets a release pass, which the SDK sends by
// itself, and strikes the accept behind it; by its name a release can be struck.
func TestReleaseIsNoSettle(t *testing.T) {
	s, connection := start(t)
	create(t, s, "q", servicebus.QueueProperties{})
	send(t, must(dial(t, connection).NewSender("q", nil))(t), message("a", "x"), message("b", "y"))
	c := converse(t, s)
	c.attach(0, wire.RoleReceiver, "q")
	c.frame(1, wire.Flow{IncomingWindow: 100, HasHandle: true, LinkCredit: 2}.Append(nil))
	c.expect(wire.CodeTransfer)
	c.expect(wire.CodeTransfer)
	settles := s.Faults().Inject(fault.Fault{Op: fault.Settle, Kind: fault.LoseResponse, Match: "q", Times: 1}, nil)
	released := wire.Disposition{Role: wire.RoleReceiver, First: 1, Last: 1, State: wire.State{Code: wire.StateReleased}}
	c.frame(1, released.Append(nil))
	c.expect(wire.CodeDisposition)
	if settles.Hits() != 0 {
		t.Fatal("a release was struck as a settle")
	}
	c.frame(1, wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: 0, State: wire.Accepted}.Append(nil))
	if err := settles.WaitApplied(t.Context()); err != nil {
		t.Fatal(err)
	}
	named := s.Faults().Inject(fault.Fault{API: "disposition", Kind: fault.LoseResponse, Times: 1}, nil)
	c.frame(1, wire.Flow{IncomingWindow: 100, HasHandle: true, DeliveryCount: 2, LinkCredit: 1}.Append(nil))
	c.expect(wire.CodeTransfer)
	released.First, released.Last = 2, 2
	c.frame(1, released.Append(nil))
	if err := named.WaitApplied(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestHugeRange: a disposition over all delivery IDs there are settles those that
// are open and takes no time over the others.
func TestHugeRange(t *testing.T) {
	s, connection := start(t)
	create(t, s, "q", servicebus.QueueProperties{})
	send(t, must(dial(t, connection).NewSender("q", nil))(t), message("a", "x"), message("b", "y"))
	c := converse(t, s)
	c.attach(0, wire.RoleReceiver, "q")
	c.frame(1, wire.Flow{IncomingWindow: 100, HasHandle: true, LinkCredit: 10}.Append(nil))
	c.expect(wire.CodeTransfer)
	c.expect(wire.CodeTransfer)
	c.frame(1, wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: 1<<31 - 1, State: wire.Accepted}.Append(nil))
	c.expect(wire.CodeDisposition)
	c.expect(wire.CodeDisposition)
	if n := must(s.Count("q"))(t); n.Active != 0 {
		t.Errorf("%d left", n.Active)
	}
}

// TestBreaches: what breaks the protocol ends link or connection with its reason,
// and harms no other connection.
func TestBreaches(t *testing.T) {
	s, connection := start(t)
	create(t, s, "q", servicebus.QueueProperties{})
	transfer := func(handle uint32) []byte { return wire.Transfer{Handle: handle}.Append(nil) }
	for name, b := range map[string]struct {
		do   func(c *conversation)
		ends uint64
		why  string
	}{
		"frame without session":   {func(c *conversation) { c.frame(9, transfer(0)) }, wire.CodeClose, "amqp:not-allowed"},
		"second session":          {func(c *conversation) { c.frame(1, wire.Begin{}.Append(nil)) }, wire.CodeClose, "amqp:not-allowed"},
		"garbage":                 {func(c *conversation) { c.frame(1, []byte{0, 0x53, 0x14, 0xc0, 200}) }, wire.CodeClose, "amqp:connection:framing-error"},
		"no performative":         {func(c *conversation) { c.frame(1, []byte{0, 0x53, 0x77, 0x45}) }, wire.CodeClose, "amqp:connection:framing-error"},
		"frame too large":         {func(c *conversation) { c.write([]byte{0, 0x7f, 0, 0, 2, 0, 0, 1}) }, wire.CodeClose, "amqp:connection:framing-error"},
		"transfer to us reversed": {func(c *conversation) { c.attach(0, wire.RoleReceiver, "q"); c.frame(1, transfer(0)) }, wire.CodeClose, "amqp:not-allowed"},
		"handle in use": {func(c *conversation) {
			c.attach(0, wire.RoleReceiver, "q")
			c.frame(1, wire.Attach{Name: "n"}.Append(nil))
		}, wire.CodeClose, "amqp:not-allowed"},
		"handle too high": {func(c *conversation) { c.frame(1, wire.Attach{Name: "n", Handle: 1 << 30}.Append(nil)) }, wire.CodeClose, "amqp:not-allowed"},
		"missing queue": {func(c *conversation) {
			c.frame(1, wire.Attach{Name: "n", Role: true, Source: address(0x28, "missing")}.Append(nil))
		}, wire.CodeDetach, "amqp:not-found"},
		"no address":  {func(c *conversation) { c.frame(1, wire.Attach{Name: "n"}.Append(nil)) }, wire.CodeDetach, "amqp:not-found"},
		"transaction": {func(c *conversation) { c.frame(1, wire.Attach{Name: "n", Target: address(0x30, "x")}.Append(nil)) }, wire.CodeDetach, "amqp:not-implemented"},
		"send to a subscription's dead letters": {func(c *conversation) {
			c.frame(1, wire.Attach{Name: "n", Target: address(0x29, "q/$deadletterqueue")}.Append(nil))
		}, wire.CodeDetach, "amqp:not-found"},
	} {
		t.Run(name, func(t *testing.T) {
			c := converse(t, s)
			b.do(c)
			fields, _ := c.until(b.ends)
			if b.ends == wire.CodeDetach {
				fields.Skip(2)
			}
			e, _ := fields.Any().(wire.Described)
			if l, _ := e.Value.(wire.List); len(l) == 0 || l[0] != wire.Symbol(b.why) {
				t.Errorf("ended with %v, want %s", e, b.why)
			}
		})
	}
	send(t, must(dial(t, connection).NewSender("q", nil))(t), message("a", "x"))
}

// until is expect, for a close too.
func (c *conversation) until(want uint64) (wire.Fields, []byte) {
	c.t.Helper()
	for {
		f, err := c.fr.Next()
		if err != nil {
			c.t.Fatalf("waiting for 0x%x: %v", want, err)
		}
		r := wire.NewReader(append([]byte(nil), f.Body...))
		if code, fields, err := r.Composite(); err == nil && code == want {
			return fields, r.Rest()
		}
	}
}

// TestSlowReader: a client that takes messages and doesn't read holds up nobody
// else, and what is held for it is bounded.
func TestSlowReader(t *testing.T) {
	s, connection := start(t)
	create(t, s, "q", servicebus.QueueProperties{})
	sender := must(dial(t, connection).NewSender("q", nil))(t)
	c := converse(t, s)
	c.attach(0, wire.RoleReceiver, "q")
	c.frame(1, wire.Flow{IncomingWindow: 1 << 20, HasHandle: true, LinkCredit: 1 << 20}.Append(nil))
	body := strings.Repeat("x", 100_000)
	for range 60 { // 6 MB, of which it reads nothing
		send(t, sender, message("a", body), message("b", body))
	}
	r := must(dial(t, connection).NewReceiverForQueue("q", nil))(t)
	receive(t, r, 60)
	s.Restart(true) // and it doesn't hold up the end
}

// TestHalfMessage: a link that ends amid a message has sent nothing.
func TestHalfMessage(t *testing.T) {
	s, _ := start(t)
	create(t, s, "q", servicebus.QueueProperties{})
	c := converse(t, s)
	c.attach(0, wire.RoleSender, "q")
	fields, _ := c.expect(wire.CodeFlow)
	if w, err := wire.ReadFlow(&fields); err != nil || w.LinkCredit != 1000 || w.IncomingWindow == 0 {
		t.Fatalf("%+v, %v", w, err)
	}
	c.frame(1, append(wire.Transfer{DeliveryTag: []byte("t"), More: true}.Append(nil), "part"...))
	c.frame(1, wire.AppendClosing(nil, wire.CodeDetach, 0, wire.Error{}))
	c.expect(wire.CodeDetach)
	if n := must(s.Count("q"))(t); n.Active != 0 {
		t.Errorf("half a message was stored")
	}
}
