package localstack

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/onceline/onceline/localstack/fault"
	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// rabbitFront is what the links of all nodes of one RabbitMQ share.
type rabbitFront struct {
	faults *fault.Set
	trace  *tracer

	mu       sync.Mutex
	bindings map[rabbitBinding]struct{} // made by clients through the proxies
}

// rabbitBinding says that what comes to an exchange can reach a queue.
type rabbitBinding struct{ exchange, queue string }

func (f *rabbitFront) bound(exchange, queue string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.bindings[rabbitBinding{exchange, queue}]
	return ok
}

func (f *rabbitFront) bind(exchange, queue string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bindings == nil {
		f.bindings = map[rabbitBinding]struct{}{}
	}
	f.bindings[rabbitBinding{exchange, queue}] = struct{}{}
}

func (f *rabbitFront) unbind(exchange, queue string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.bindings, rabbitBinding{exchange, queue})
}

// rabbitLink is a joined pair of connections that speak AMQP 0-9-1.
type rabbitLink struct {
	*link
	*rabbitFront
	toServer, toClient door

	greeted bool       // the client's protocol header was passed on; requests only
	held    *Injection // by the fault that strikes the next request; requests only
	last    bool       // the next frame goes on, and then the link ends; requests only

	mu       sync.Mutex
	channels map[uint16]*rabbitChannel

	// answering is held from looking at the broker's frames until they are
	// written, so that an answer of our own never comes between the frames of one
	// message.
	answering sync.Mutex
}

// rabbitChannel is what the link knows of a channel. All of it is guarded by the
// link's mu.
type rabbitChannel struct {
	confirms *rabbitConfirms // nil until the client has asked for confirms
	sending  rabbitContent   // the message that the client is sending
	coming   rabbitContent   // the message that the broker is sending
	behind   []byte          // answers of our own that belong behind that one

	queue      string            // the last that was declared, for which "" stands
	consumers  map[string]string // consumer tag → queue
	unnamed    []string          // queues of consumers whose tag the broker will say
	gets       []string          // queues of basic.get without answer yet
	deliveries []rabbitRun

	lost    *Injection // whose response is to be dropped
	lostFor amqp.Method

	// After a refusal of our own both sides close the channel; what either says
	// before it has answered that is not for the other.
	clientCloses, brokerCloses bool
}

// rabbitRun says that the deliveries from a tag on came from a queue.
type rabbitRun struct {
	from  uint64
	queue string
}

// rabbitContent follows the frames of a message behind its method.
type rabbitContent struct {
	what   fate
	open   bool // more frames are to come
	headed bool // the header frame has been seen
	left   uint64
}

// begin starts to follow a message, whose frames get this fate.
func (c *rabbitContent) begin(what fate) { *c = rabbitContent{what: what, open: true} }

// next takes a header or body frame into account.
func (c *rabbitContent) next(f amqp.Frame) fate {
	what := c.what
	switch {
	case !c.open:
		return forward
	case f.Type == amqp.FrameHeader && len(f.Payload) >= 12:
		c.headed, c.left = true, binary.BigEndian.Uint64(f.Payload[4:])
	case f.Type == amqp.FrameBody && c.headed:
		c.left -= min(c.left, uint64(len(f.Payload)))
	}
	if c.headed && c.left == 0 {
		c.open = false
	}
	return what
}

// channel returns what is known of a channel; mu is held.
func (r *rabbitLink) channel(id uint16) *rabbitChannel {
	ch := r.channels[id]
	if ch == nil {
		ch = &rabbitChannel{consumers: map[string]string{}}
		r.channels[id] = ch
	}
	return ch
}

// serveRabbit serves a link in the protocol that its client speaks.
func serveRabbit(l *link, front *rabbitFront) {
	r := &rabbitLink{
		link: l, rabbitFront: front, channels: map[uint16]*rabbitChannel{},
		toServer: door{link: l, conn: l.server},
		toClient: door{link: l, conn: l.client},
	}
	s := newRabbitStream(r)
	amqpSpoken := make(chan bool, 1)
	first := true
	l.both(
		func() {
			defer close(amqpSpoken) // if the client never said a word
			pump(l.client, &r.toServer, func(b []byte) (int, fate) {
				if first {
					first = false
					amqpSpoken <- b[0] == amqp.Protocol[0]
					if b[0] != amqp.Protocol[0] {
						r.greeted, s.spoken = true, true
					}
				}
				if s.spoken {
					return s.request(b)
				}
				return r.request(b)
			})
		},
		func() {
			spoken, ok := <-amqpSpoken
			switch {
			case !ok:
			case spoken:
				r.responses()
			default:
				pump(l.server, &r.toClient, s.response)
			}
		},
	)
}

// rabbitFrame returns the first frame of b and its length: 0 when it is not whole
// yet, -1 when it is none.
func rabbitFrame(b []byte) (amqp.Frame, int) {
	f, n, err := amqp.ParseFrame(b, math.MaxInt32)
	if err != nil {
		return f, -1
	}
	return f, n
}

// method returns a method frame's method, 0 if the frame is none.
func method(f amqp.Frame) amqp.Method {
	if f.Type != amqp.FrameMethod || len(f.Payload) < 4 {
		return 0
	}
	return amqp.Method(binary.BigEndian.Uint32(f.Payload))
}

// methodFrame makes a frame of a method whose arguments args appends.
func methodFrame(channel uint16, m amqp.Method, args func([]byte) []byte) []byte {
	b := amqp.BeginFrame(nil, amqp.FrameMethod, channel)
	b = binary.BigEndian.AppendUint32(b, uint32(m))
	if args != nil {
		b = args(b)
	}
	return amqp.EndFrame(b, 0)
}

// closing makes the frame that closes a channel or, on channel 0, a connection,
// because of what a request has asked for.
func closing(channel uint16, code int, cause amqp.Method) []byte {
	m := amqp.ChannelClose
	if channel == 0 {
		m = amqp.ConnectionClose
	}
	return methodFrame(channel, m, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint16(b, uint16(code))
		b = amqp.AppendShort(b, fmt.Sprintf("%s - injected fault", amqp.CodeName(code)))
		b = binary.BigEndian.AppendUint16(b, cause.Class())
		return binary.BigEndian.AppendUint16(b, cause.Number())
	})
}

// checkRabbitAPI knows the requests of AMQP 0-9-1, what hands messages out, and
// the commands of streams.
func checkRabbitAPI(api string) error {
	for class := range amqp.Method(100) {
		for number := range amqp.Method(130) {
			if m := class<<16 | number; api == m.String() {
				return nil
			}
		}
	}
	for _, name := range rabbitStreamNames {
		if name == api {
			return nil
		}
	}
	return fmt.Errorf("localstack: fault: rabbitmq has no request %q", api)
}
