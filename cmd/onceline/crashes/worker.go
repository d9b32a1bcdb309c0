package crashes

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// consumerEnv tells a process that it is a consumer.
const consumerEnv = "ONCELINE_CRASHES_CONSUMER"

// RunIfConsumer turns this process into a consumer if a cell started it as one, and
// doesn't return then. A program or test binary that runs cells calls it first thing.
func RunIfConsumer() {
	raw := os.Getenv(consumerEnv)
	if raw == "" {
		return
	}
	w := &worker{out: json.NewEncoder(os.Stdout), answers: map[int]chan string{}, gone: make(chan struct{})}
	err := json.Unmarshal([]byte(raw), &w.spec)
	if err == nil {
		err = w.run()
	}
	if err != nil {
		w.tell(event{Event: failed, Note: err.Error()})
		os.Exit(1)
	}
	os.Exit(0)
}

// worker is the consumer in its own process. It handles one message at a time, or by a
// stored position one batch.
type worker struct {
	spec consumerSpec

	outMu sync.Mutex
	out   *json.Encoder

	mu      sync.Mutex
	trigger *trigger
	current string // the message in hand, or of a batch the one with the trigger
	seq     int
	answers map[int]chan string
	gone    chan struct{} // closed when nobody answers any more
	cut     func()        // ends the connections to the store

	// handling is held while a message is handled, and at AfterAck, so that who is stopped
	// there is in the middle of no other message.
	handling sync.Mutex
	// passed is the answer to having passed a point without waiting there, nil for none.
	// It is waited for before the message is done with.
	passed <-chan string
}

func (w *worker) tell(e event) {
	w.outMu.Lock()
	defer w.outMu.Unlock()
	_ = w.out.Encode(e)
}

// ask tells of e and waits for the answer.
func (w *worker) ask(e event) string { return w.wait(w.begin(e)) }

// begin tells of e, whose answer is waited for later.
func (w *worker) begin(e event) <-chan string {
	answer := make(chan string, 1)
	w.mu.Lock()
	w.seq++
	e.Seq = w.seq
	w.answers[e.Seq] = answer
	w.mu.Unlock()
	w.tell(e)
	return answer
}

func (w *worker) wait(answer <-chan string) string {
	select {
	case a := <-answer:
		return a
	case <-w.gone:
		return goOn
	}
}

// read takes commands until there are no more.
func (w *worker) read() {
	defer close(w.gone)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var c command
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			w.tell(event{Event: failed, Note: err.Error()})
			return
		}
		w.mu.Lock()
		if c.Trigger != nil {
			w.trigger = c.Trigger
		}
		if answer := w.answers[c.Seq]; answer != nil {
			delete(w.answers, c.Seq)
			answer <- c.Do
		}
		w.mu.Unlock()
	}
}

// reach stops at a point if id's trigger is there.
func (w *worker) reach(p Point, id string) {
	if t := w.take(p, id); t != nil {
		w.stop(t)
	}
}

// take returns the trigger if it is id's at the point, and disarms it.
func (w *worker) take(p Point, id string) *trigger {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.trigger
	if t == nil || t.ID != id || t.Point != p {
		return nil
	}
	w.trigger = nil
	return t
}

// stop is at the point of a trigger, until it is told to go on.
func (w *worker) stop(t *trigger) {
	if w.ask(event{Event: at, ID: t.ID, Point: t.Point}) == cutOff {
		w.cut()
	}
}

func (w *worker) enter(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.current = id
}

// now is the message in hand.
func (w *worker) now() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

// outside asks for an effect outside of the store, and reports whether it was taken.
func (w *worker) outside(id, key string, fence int64) error {
	w.reach(AfterClaim, id)
	if w.ask(event{Event: effect, ID: id, Key: key, Fence: fence}) == refused {
		return fmt.Errorf("%w: the destination refuses the fencing number %d", broker.ErrLeaseLost, fence)
	}
	w.reach(AfterEffect, id)
	return nil
}

// locked reports that another process holds SQLite's write lock.
func locked(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_BUSY
}

func (w *worker) run() error {
	s, ok := storeNamed(w.spec.Store)
	if !ok {
		return fmt.Errorf("there is no store %q", w.spec.Store)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	opening, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	open := func() (*guard, error) {
		try, cancel := context.WithTimeout(opening, 2*time.Second)
		defer cancel()
		return s.open(try, w)
	}
	g, err := open()
	for (locked(err) || errors.Is(err, context.DeadlineExceeded)) && opening.Err() == nil { // one that is frozen has the lock, or the machine is slow
		w.tell(event{Event: note, Note: err.Error()})
		g, err = open()
	}
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	w.cut = g.cut
	conn, err := broker.Open(opening, w.spec.Broker)
	for errors.Is(err, broker.ErrUnavailable) && pause(opening, retryDelay) { // a busy machine
		conn, err = broker.Open(opening, w.spec.Broker)
	}
	if err != nil {
		return err
	}
	go w.read()
	go func() { <-w.gone; stop() }()
	w.tell(event{Event: ready})
	if g.position != nil {
		err = w.follow(ctx, conn, g.position)
	} else {
		err = w.consume(ctx, conn, g.handle)
	}
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, conn.Close(end), g.close())
}

// consume handles messages as a queue delivers them.
func (w *worker) consume(ctx context.Context, conn broker.Conn, handle broker.Handler) error {
	r, err := conn.OpenReceiver(ctx, w.spec.Subscription)
	if ctx.Err() != nil {
		return nil // it is to leave already
	}
	if err != nil {
		return err
	}
	told := telling{r, w}
	return broker.Consume(ctx, told, func(ctx context.Context, d *broker.Delivery) error {
		w.handling.Lock()
		defer w.handling.Unlock()
		w.enter(d.ID)
		w.reach(BeforeClaim, d.ID)
		// What is asked is whether the store keeps out a consumer that has lost its message
		// and doesn't know it; Consume would tell it.
		err := handle(context.WithoutCancel(ctx), d)
		if w.passed != nil {
			w.wait(w.passed)
			w.passed = nil
		}
		if err == nil {
			w.reach(AfterCommit, d.ID)
		}
		w.tellOf(d.ID, err)
		return err
	}, broker.ConsumeOptions{Workers: 1, Batch: w.spec.Batch, MaxInFlight: w.spec.Batch, DrainTimeout: 5 * time.Second,
		Backoff: broker.Backoff{Min: retryDelay, Max: retryDelay}, ErrorHook: func(err error) { w.tell(event{Event: note, Note: err.Error()}) }})
}

// tellOf tells what became of a message.
func (w *worker) tellOf(id string, err error) {
	e := event{Event: handled, ID: id, OK: err == nil, Parked: errors.Is(err, dedup.ErrUnresolved)}
	if err != nil {
		e.Note = err.Error()
	}
	w.tell(e)
}

// telling is a receiver that tells of the acks which the broker took.
type telling struct {
	broker.Receiver
	w *worker
}

func (t telling) Settle(ctx context.Context, s []broker.Settlement) error {
	err := t.Receiver.Settle(ctx, s)
	var ids []string
	for i := range s {
		if s[i].Action == broker.Ack && s[i].Outcome.State.OK() {
			ids = append(ids, s[i].Delivery.ID)
		}
	}
	if len(ids) > 0 {
		t.w.tell(event{Event: settled, IDs: ids})
	}
	for _, id := range ids {
		if at := t.w.take(AfterAck, id); at != nil {
			t.w.handling.Lock()
			t.w.stop(at)
			t.w.handling.Unlock()
		}
	}
	return err
}

// position is a store that keeps the offset of what was applied.
type position interface {
	// load returns the offset of the last message applied.
	load(ctx context.Context) (int64, error)
	// apply applies messages behind prev, and returns where the store is then.
	// dedup.ErrFenced: not behind prev.
	apply(ctx context.Context, prev int64, ds []broker.Delivery) (int64, error)
}

// follow handles a log, from where the store is.
func (w *worker) follow(ctx context.Context, conn broker.Conn, p position) error {
	prev, err := p.load(ctx)
	if ctx.Err() != nil {
		return nil // it is to leave already
	}
	if err != nil {
		return err
	}
	var applied atomic.Int64 // a receiver that reconnects asks while a batch is applied
	applied.Store(prev)
	r, err := conn.OpenReceiver(ctx, w.spec.Subscription, broker.StartFrom(func(string) (broker.Position, bool) {
		return broker.Position{Offset: uint64(applied.Load() + 1)}, true
	}))
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		ds, err := r.Receive(ctx, w.spec.Batch)
		if len(ds) == 0 {
			if ctx.Err() == nil {
				w.tell(event{Event: note, Note: fmt.Sprint("receive: ", err)})
				if errors.Is(err, broker.ErrClosed) {
					return err
				}
				pause(ctx, retryDelay)
			}
			continue
		}
		prev, err = w.followed(ctx, r, p, prev, ds)
		applied.Store(prev)
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return r.Close(end)
}

// followed applies one batch, however often that takes, and acks it.
func (w *worker) followed(ctx context.Context, r broker.Receiver, p position, prev int64, ds []broker.Delivery) (int64, error) {
	id := w.retarget(ds)
	w.enter(id)
	w.reach(BeforeClaim, id)
	for {
		next, err := p.apply(ctx, prev, ds)
		if err == nil {
			prev = next
			break
		}
		w.tell(event{Event: note, Note: err.Error()})
		if errors.Is(err, dedup.ErrFenced) || errors.Is(err, broker.ErrUnavailable) || errors.Is(err, broker.ErrUnknownOutcome) {
			if !pause(ctx, retryDelay) {
				return prev, ctx.Err()
			}
			if prev, err = p.load(ctx); err == nil {
				continue
			}
			w.tell(event{Event: note, Note: err.Error()})
			continue
		}
		return prev, err
	}
	// A log is read from the store's position: what is behind it doesn't come again.
	var ids []string
	s := make([]broker.Settlement, len(ds))
	for i := range ds {
		ids, s[i] = append(ids, ds[i].ID), broker.Settlement{Delivery: &ds[i], Action: broker.Ack}
	}
	w.tell(event{Event: settled, IDs: ids})
	w.reach(AfterCommit, id)
	w.tellOf(id, nil)
	if err := r.Settle(ctx, s); err != nil && ctx.Err() == nil {
		w.tell(event{Event: note, Note: err.Error()}) // the broker's own memory of the place is of no interest
	}
	w.reach(AfterAck, id)
	return prev, nil
}

// retarget moves the trigger to the first message of a batch that has another behind
// it, so that what a batch does to the rest of it shows, and returns the message to
// watch.
func (w *worker) retarget(ds []broker.Delivery) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.trigger; t != nil {
		if w.spec.Batch == 1 {
			return ds[0].ID
		}
		if len(ds) > 1 && ds[0].ID >= t.ID {
			moved := *t
			moved.ID = ds[0].ID
			w.trigger = &moved
		}
	}
	return ds[0].ID
}

// pause waits, and reports whether ctx lasted so long.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
