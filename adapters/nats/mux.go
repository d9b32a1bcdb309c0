package nats

import (
	"context"
	"strconv"
	"strings"
	"sync"

	natsgo "github.com/nats-io/nats.go"

	"github.com/onceline/onceline/broker"
)

// mux is the inbox to which all answers of a connection come: publish
// acknowledgements and confirmed settles. A batch of requests is one exchange;
// the reply subject of a request names the exchange and the request's place in
// it, so that an answer finds its place without a channel, a goroutine or a map
// entry of its own, and one that comes after its exchange was closed finds
// nothing: exchange numbers are never used again.
type mux struct {
	prefix string // of reply subjects: the inbox and a dot
	sub    *natsgo.Subscription
	ended  chan struct{} // closed when the SDK's goroutine of sub has returned

	mu   sync.Mutex
	last uint64
	open map[uint64]*exchange
}

// answers takes what comes in an exchange. answer is called under the mux's
// lock, for each place at most once with a true result.
type answers interface {
	// answer takes the answer to request i and reports whether it is the
	// first.
	answer(i int, m *natsgo.Msg) bool
}

// exchange is a batch of requests in flight.
type exchange struct {
	id       uint64
	to       answers
	answered int           // guarded by the mux
	target   int           // answers that the waiting caller needs; guarded by the mux
	wake     chan struct{} // of capacity 1; a stale token in it is harmless
}

func newMux(nc *natsgo.Conn) (*mux, error) {
	m := &mux{prefix: nc.NewInbox() + ".", ended: make(chan struct{}), open: map[uint64]*exchange{}}
	sub, err := nc.Subscribe(m.prefix+"*", m.receive)
	if err != nil {
		return nil, err
	}
	sub.SetClosedHandler(func(string) { close(m.ended) })
	// Acknowledgements are small and no more than the windows of publishers
	// and receivers allow; dropping one would make an outcome unknown.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	m.sub = sub
	return m, nil
}

// start opens an exchange. x.to and x.wake are set.
func (m *mux) start(x *exchange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-x.wake: // of an earlier life
	default:
	}
	m.last++
	x.id, x.answered, x.target = m.last, 0, int(^uint(0)>>1)
	m.open[x.id] = x
}

// finish closes an exchange: when it returns, no answer is taken any more.
func (m *mux) finish(x *exchange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, x.id)
}

// wait blocks until sent answers have come, and returns why it gave up
// otherwise.
func (m *mux) wait(ctx context.Context, x *exchange, sent int, lost, closing <-chan struct{}) error {
	for {
		m.mu.Lock()
		x.target = sent
		done := x.answered >= sent
		m.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-x.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-lost:
			return errLinkLost
		case <-closing:
			return broker.ErrClosed
		}
	}
}

// receive is the SDK's callback: one goroutine for all answers.
func (m *mux) receive(msg *natsgo.Msg) {
	id, i, ok := parseReply(msg.Subject, len(m.prefix))
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.open[id]
	if x == nil || !x.to.answer(i, msg) {
		return
	}
	if x.answered++; x.answered >= x.target {
		x.rouse()
	}
}

func (x *exchange) rouse() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// close ends the subscription and waits for its goroutine.
func (m *mux) close(ctx context.Context) {
	// An error means that the connection, and the subscription with it, is
	// closed already.
	_ = m.sub.Unsubscribe()
	select {
	case <-m.ended:
	case <-ctx.Done():
	}
}

// noResponders reports whether m says that nobody listens to the request's
// subject: surely nothing took it.
func noResponders(m *natsgo.Msg) bool {
	return len(m.Data) == 0 && statusOf(m) == "503"
}

func statusOf(m *natsgo.Msg) string { return first(m.Header, "Status") }

// chunk is how many reply subjects are built in one allocation.
const chunk = 64

// replies builds the reply subjects of an exchange, a chunk in one allocation.
type replies struct {
	buf  []byte
	ends [chunk]int
	subj [chunk]string
}

// of returns the reply subjects of n requests of x that begin with number from;
// n is at most chunk. The result is good until the next call.
func (r *replies) of(prefix string, x *exchange, from, n int) []string {
	r.buf = r.buf[:0]
	for i := range n {
		r.buf = append(r.buf, prefix...)
		r.buf = strconv.AppendUint(r.buf, x.id, 36)
		r.buf = append(r.buf, '-')
		r.buf = strconv.AppendInt(r.buf, int64(from+i), 36)
		r.ends[i] = len(r.buf)
	}
	all, begin := string(r.buf), 0
	for i := range n {
		r.subj[i] = all[begin:r.ends[i]]
		begin = r.ends[i]
	}
	return r.subj[:n]
}

// parseReply reads what replies.of wrote behind the prefix.
func parseReply(subject string, prefix int) (id uint64, i int, ok bool) {
	if len(subject) <= prefix {
		return 0, 0, false
	}
	left, right, ok := strings.Cut(subject[prefix:], "-")
	if !ok {
		return 0, 0, false
	}
	id, ok = base36(left)
	if !ok {
		return 0, 0, false
	}
	n, ok := base36(right)
	return id, int(n), ok && n <= uint64(^uint(0)>>1)
}

// base36 is strconv.ParseUint for what strconv.AppendUint wrote, at a fraction
// of the cost.
func base36(s string) (n uint64, ok bool) {
	if s == "" || len(s) > 12 {
		return 0, false
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			n = n*36 + uint64(c-'0')
		case 'a' <= c && c <= 'z':
			n = n*36 + uint64(c-'a') + 10
		default:
			return 0, false
		}
	}
	return n, true
}

func first(h natsgo.Header, name string) string {
	if vs := h[name]; len(vs) > 0 {
		return vs[0]
	}
	return ""
}
