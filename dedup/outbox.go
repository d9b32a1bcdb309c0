package dedup

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
)

// OutboxLanes is how many lanes the messages of a topic are divided into by their
// ordering keys. One relay at a time sends the messages of a lane.
const OutboxLanes = 64

// OutboxDriver is what a store implements for [Outbox]; T is its transaction.
type OutboxDriver[T any] interface {
	OutboxStore
	// Transact is that of [Driver].
	Transact(ctx context.Context, f func(tx T) error) error
	// AddOutbox writes rows of a topic into tx, so that their Seq grows in the order
	// of rows.
	AddOutbox(ctx context.Context, tx T, topic string, rows []OutboxRow) error
}

// Outbox keeps messages in the transaction of the business data that they tell of:
// both are committed, or neither. A [Relay] sends them.
//
// # Order
//
// The messages of one ordering key are sent in the order in which they were written,
// if those who write them take turns: a transaction locks what the key stands for
// (the order's row, say) before it adds the message, and holds it until its commit,
// as it does anyway to change that. Messages of different keys, and those without a
// key, have no order.
//
// It is safe for concurrent use.
type Outbox[T any] struct {
	driver OutboxDriver[T]
	topic  string
	o      OutboxOptions

	mu       sync.Mutex
	again    bool          // Notify was called while another one is under way
	underWay chan struct{} // closed at its end; nil: none is
	closed   bool
	stop     context.CancelFunc
	ctx      context.Context
}

// OutboxOptions says how an [Outbox] tells relays of new messages. The zero value
// leaves it to their polling.
type OutboxOptions struct {
	// Wake is called by Notify, and must not block: [Relay.Wake] of a relay in this
	// process.
	Wake func()
	// Others says that Notify also tells relays in other processes, where the store
	// can: PostgreSQL by its NOTIFY.
	Others bool
	// Pause is the time between two messages to other processes, in which one
	// speaks for all. Zero means 5 ms.
	Pause time.Duration
	// ErrorHook gets the errors of telling others, whose cost is the polling's
	// delay. Nil drops them.
	ErrorHook func(error)
}

// NewOutbox returns the outbox of a topic, as the relay's broker names it. It panics
// if there is no driver or no topic. Close ends what Notify has begun.
func NewOutbox[T any](d OutboxDriver[T], topic string, o OutboxOptions) *Outbox[T] {
	if d == nil || topic == "" {
		panic("dedup: NewOutbox without a driver or a topic")
	}
	if o.Pause <= 0 {
		o.Pause = 5 * time.Millisecond
	}
	if o.ErrorHook == nil {
		o.ErrorHook = func(error) {}
	}
	out := &Outbox[T]{driver: d, topic: topic, o: o}
	out.ctx, out.stop = context.WithCancel(context.Background())
	return out
}

// AddTx writes msgs into tx, to be sent once it has committed. Call [Outbox.Notify]
// after the commit, or let [Outbox.InTx] do both.
//
// The ID of a message is its dedup ID on all attempts. Where it is empty AddTx sets
// a random one, also in msgs; one made of business parts ([JoinID]) is better, for it
// also stays the same when the business transaction runs again. A zero Time is set
// to the present one.
//
// A message that no broker takes (an ID too long, a reserved header) is
// [broker.ErrInvalid], and nothing is written. The errors of the store are its own;
// the caller rolls back.
func (out *Outbox[T]) AddTx(ctx context.Context, tx T, msgs ...broker.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	rows := make([]OutboxRow, len(msgs))
	for i := range msgs {
		m := &msgs[i]
		if err := checkMessage(m); err != nil {
			return err
		}
		if m.ID == "" {
			m.ID = randomID()
		}
		if m.Time.IsZero() {
			m.Time = time.Now()
		}
		rows[i] = rowOf(m)
	}
	if err := out.driver.AddOutbox(ctx, tx, out.topic, rows); err != nil {
		return fmt.Errorf("dedup: outbox of %s: %w", out.topic, err)
	}
	return nil
}

// InTx runs f in a transaction of the store, which f adds messages to by AddTx, and
// calls Notify once it has committed.
func (out *Outbox[T]) InTx(ctx context.Context, f func(tx T) error) error {
	err := out.driver.Transact(ctx, f)
	if err == nil {
		out.Notify()
	}
	return err
}

// Notify tells relays that there are messages; call it after the commit. It doesn't
// block. Many calls at a time become one or two messages to other processes, for one
// within each transaction would make all commits queue for it.
func (out *Outbox[T]) Notify() {
	if out.o.Wake != nil {
		out.o.Wake()
	}
	if !out.o.Others {
		return
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	if out.closed {
		return
	}
	if out.again = true; out.underWay == nil {
		out.underWay = make(chan struct{})
		go out.tell(out.underWay)
	}
}

// tell tells other processes until nobody has called Notify meanwhile.
func (out *Outbox[T]) tell(done chan struct{}) {
	defer close(done)
	for {
		out.mu.Lock()
		if !out.again || out.closed {
			out.underWay = nil
			out.mu.Unlock()
			return
		}
		out.again = false
		out.mu.Unlock()
		out.tellOnce()
		pause(out.ctx, out.o.Pause, nil)
	}
}

// notifyTries bounds what is tried on connections that turn out lost: without the
// message a relay of another process finds the rows at its next poll only.
const notifyTries = 3

func (out *Outbox[T]) tellOnce() {
	ctx, cancel := context.WithTimeout(out.ctx, 5*time.Second)
	defer cancel()
	var err error
	for range notifyTries {
		err = out.driver.NotifyOutbox(ctx, out.topic)
		if !errors.Is(err, ErrLost) && !errors.Is(err, ErrCommitUnknown) {
			break
		}
	}
	if err != nil && out.ctx.Err() == nil {
		out.o.ErrorHook(fmt.Errorf("dedup: outbox of %s: notify: %w", out.topic, err))
	}
}

// Close ends the message to other processes that is under way; ctx bounds the wait.
// AddTx works on; Notify does nothing any more. Closing again returns nil.
func (out *Outbox[T]) Close(ctx context.Context) error {
	out.mu.Lock()
	out.closed = true
	done := out.underWay
	out.mu.Unlock()
	out.stop()
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("dedup: close outbox of %s: %w", out.topic, context.Cause(ctx))
	}
}

// pause waits for d, ctx or wake, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

func checkMessage(m *broker.Message) error {
	bad := func(what string) error {
		return broker.Errorf(broker.ErrInvalid, nil, "dedup: message %q to the outbox: %s", m.ID, what)
	}
	for what, text := range map[string]string{"ID": m.ID, "Copy": m.Copy, "Key": m.Key} {
		if len(text) > broker.MaxID || strings.IndexByte(text, 0) >= 0 {
			return bad(fmt.Sprintf("%s is over %d bytes or holds a NUL", what, broker.MaxID))
		}
	}
	for i := range m.Headers {
		name := m.Headers[i].Key
		if name == "" {
			return bad(fmt.Sprintf("header %d has no name", i))
		}
		// The marks of a dead letter may stay on it.
		if p := broker.ReservedPrefix; len(name) >= len(p) && strings.EqualFold(name[:len(p)], p) && !strings.HasPrefix(name, p+"dead-letter-") {
			return bad(fmt.Sprintf("header %q is reserved", name))
		}
	}
	return nil
}

func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// OutboxRow is a message as stores keep it.
type OutboxRow struct {
	Seq  int64 // the store's own number, which grows with each row
	Lane int   // from 0 to OutboxLanes-1
	// Hash stands for the ordering key; rows with the same one are sent in order. 0
	// is that of rows without a key.
	Hash int64
	ID   string
	Key  string
	// Meta is what else there is of the message, in this package's own form.
	Meta []byte
	Body []byte
	Time time.Time // the message's, to the microsecond
	// Attempts is how often it was tried without success.
	Attempts int
	// Age is how long ago the broker may first have stored the message, by the
	// store's clock; under Guard it is never less than nothing.
	Age time.Duration
}

func rowOf(m *broker.Message) OutboxRow {
	r := OutboxRow{ID: m.ID, Key: m.Key, Body: m.Body, Time: m.Time, Meta: encodeMeta(m)}
	of := m.Key
	if of == "" {
		of = m.ID
	}
	sum := sha256.Sum256([]byte(of))
	hash := binary.BigEndian.Uint64(sum[:])
	r.Lane = int(hash % OutboxLanes)
	if m.Key != "" {
		r.Hash = int64(max(hash, 1))
	}
	return r
}

// message is the reverse of rowOf.
func (r *OutboxRow) message() (broker.Message, error) {
	m := broker.Message{ID: r.ID, Key: r.Key, Body: r.Body, Time: r.Time}
	if err := decodeMeta(r.Meta, &m); err != nil {
		return m, broker.Errorf(broker.ErrInvalid, nil, "dedup: outbox row %d: %v", r.Seq, err)
	}
	return m, nil
}

// metaVersion begins every Meta.
const metaVersion = 1

func encodeMeta(m *broker.Message) []byte {
	text := func(b []byte, s string) []byte { return append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	b := text([]byte{metaVersion}, m.Copy)
	for i := range m.Headers {
		b = text(text(b, m.Headers[i].Key), m.Headers[i].Value)
	}
	return b
}

func decodeMeta(b []byte, m *broker.Message) error {
	if len(b) == 0 || b[0] != metaVersion {
		return fmt.Errorf("its headers are of another version")
	}
	b = b[1:]
	ok := true
	text := func() string {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			ok, b = false, nil
			return ""
		}
		s := string(b[size : size+int(n)])
		b = b[size+int(n):]
		return s
	}
	m.Copy = text()
	for ok && len(b) > 0 {
		m.Headers = append(m.Headers, broker.Header{Key: text(), Value: text()})
	}
	if !ok {
		return fmt.Errorf("its headers are cut short")
	}
	return nil
}
