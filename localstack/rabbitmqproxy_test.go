package localstack

import (
	"context"
	"net"
	"strings"
	"testing"
)

// elsewhere is a broker that somebody else runs.
type elsewhere struct{}

func (elsewhere) start(context.Context, string) error { return nil }
func (elsewhere) stop(context.Context) error          { return nil }
func (elsewhere) direct() string                      { return "" }

// ProxyOfRabbitMQ puts the proxy of a real RabbitMQ in front of a broker, for tests.
func ProxyOfRabbitMQ(t *testing.T, url string) Emulator {
	t.Helper()
	addr := strings.TrimPrefix(url, "rabbitmq://")
	e := &emulator{name: RabbitMQName, backend: elsewhere{}, checkAPI: checkRabbitAPI}
	front := &rabbitFront{faults: &e.faults, trace: &e.trace}
	p, err := listen(0, func(net.Addr) (net.Conn, error) {
		return newChosenConn(func([]byte) (net.Conn, error) { return net.Dial("tcp", addr) }), nil
	}, func(l *link) { serveRabbit(l, front) })
	if err != nil {
		t.Fatal(err)
	}
	e.proxies = []*proxy{p}
	if err := e.open(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestRabbitConfirms(t *testing.T) {
	c := newRabbitConfirms()
	c.sent = 10
	for _, step := range []struct {
		tag      uint64
		multiple byte
		low      uint64
	}{{3, 0, 1}, {1, 0, 2}, {2, 0, 4}, {8, 0, 4}, {6, 1, 7}, {7, 0, 9}, {10, 1, 11}} {
		if _, same, _ := c.confirm(1, 60<<16|80, []byte{0, 0, 0, 0, 0, 0, 0, byte(step.tag), step.multiple}); !same {
			t.Fatalf("%+v was changed", step)
		}
		if c.low != step.low || c.low > 10 && len(c.above) > 0 {
			t.Fatalf("%+v: low %d, above %v", step, c.low, c.above)
		}
	}
	if got := c.drop(); got != 11 {
		t.Fatalf("dropped %d", got)
	}
	c.sent += 2 // 12 and 13 are 11 and 12 to the broker
	frames, same, _ := c.confirm(1, 60<<16|80, []byte{0, 0, 0, 0, 0, 0, 0, 12, 1})
	want := string(confirmFrame(1, 60<<16|80, 12)) + string(confirmFrame(1, 60<<16|80, 13))
	if same || string(frames) != want {
		t.Fatalf("a confirm of several behind a dropped one: %x, want %x", frames, want)
	}
}

func FuzzRabbitRequest(f *testing.F) {
	f.Add([]byte("AMQP\x00\x00\x09\x01"), closing(1, 406, 60<<16|40))
	f.Add(confirmFrame(1, 60<<16|80, 7), []byte{1, 0, 1, 0, 0, 0, 4, 0, 60, 0, 40, 0xCE})
	f.Fuzz(func(t *testing.T, requests, responses []byte) {
		r := &rabbitLink{link: &link{done: make(chan struct{})}, rabbitFront: &rabbitFront{trace: &tracer{}}, channels: map[uint16]*rabbitChannel{}, greeted: true}
		e := &emulator{}
		r.faults = &e.faults
		r.trace.set(func(string) {})
		armed := e.Inject(Fault{Kind: LoseResponse, Match: "q"})
		defer armed.Remove()
		for b := requests; len(b) > 0; {
			size, _ := r.request(b)
			if size <= 0 {
				break
			}
			if size > len(b) {
				t.Fatalf("%d bytes of %d", size, len(b))
			}
			b = b[size:]
		}
		for b := responses; len(b) > 0; {
			frame, size := rabbitFrame(b)
			if size <= 0 {
				break
			}
			r.response(frame)
			b = b[size:]
		}
	})
}

func FuzzRabbitStream(f *testing.F) {
	refuse := streamFrame{key: streamMetadata, body: []byte{0, 0, 0, 1, 0, 1, 's'}}
	f.Add(refuse.refusal(15), refuse.refusal(15))
	f.Fuzz(func(t *testing.T, requests, responses []byte) {
		e := &emulator{}
		r := &rabbitLink{link: &link{done: make(chan struct{})}, rabbitFront: &rabbitFront{faults: &e.faults, trace: &tracer{}}}
		s := newRabbitStream(r)
		defer e.Inject(Fault{Kind: LoseResponse}).Remove()
		for b := requests; len(b) > 0; {
			size, _ := s.request(b)
			if size <= 0 {
				break
			}
			frame := parseStreamFrame(b[:size])
			frame.refusal(15)
			b = b[size:]
		}
		if size := streamFrameSize(responses); size > 0 {
			parseStreamFrame(responses[:size])
		}
	})
}
