package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
)

// run is one begin of a pipeline, from the last checkpoint to an error or a stop.
type run[T any] struct {
	*Pipeline[T]
	term   int64 // 0: the pipeline isn't taken yet
	number int64 // of the checkpoint that is filled now
	base   int64 // the one whose state this began with; no newer is undone
	places *places

	from     []Place       // where the sources stood at the last checkpoint
	first    map[at]uint64 // where partitions began that weren't there then
	input    uint64        // since the last checkpoint
	output   uint64
	bytes    int
	opened   time.Time // when its first message came
	due      time.Time // when the next one is
	unmarked bool      // the last one is committed, and its row doesn't say so
	begun    bool      // input is read
	recorded bool      // the present one's row is in the store, or may be
	held     map[*Source][]broker.Settlement
	out      Out

	checkpoints int // complete ones of this run
	receivers   map[*Source]broker.Receiver
}

// once begins at the last checkpoint and runs until ctx ends or something fails.
func (r *run[T]) once(ctx context.Context) (err error) {
	work, end := outlive(ctx, r.o.StopTimeout)
	defer end()
	defer func() { r.close(ctx, err) }()
	if err := r.begin(ctx); err != nil {
		return err
	}
	r.begun = true
	reading, stop := context.WithCancel(ctx)
	var feeds sync.WaitGroup
	in := make(chan batch)
	defer feeds.Wait()
	defer stop()
	for s, receiver := range r.receivers {
		feeds.Go(func() { feed(reading, s, receiver, in) })
	}
	return r.loop(ctx, work, in)
}

// outlive returns a context that ends so long after ctx, or at the call of end.
func outlive(ctx context.Context, by time.Duration) (_ context.Context, end func()) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		pause(longer, by)
		cancel()
	})
	return longer, func() { cancel(); stop() }
}

// closeTimeout bounds what ends a run: the roll-back of what is open, and the
// connections.
const closeTimeout = 10 * time.Second

// close takes back what is open, if the run failed, and closes sources and sink.
// Nothing of it changes what was recorded.
func (r *run[T]) close(ctx context.Context, failed error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var errs []error
	for s, receiver := range r.receivers {
		if err := receiver.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close source %s: %w", s.Name, err))
		}
	}
	if failed != nil && !r.recorded && r.output > 0 {
		r.ended(true)
		if err := r.sink.Abort(ctx); err != nil {
			errs = append(errs, fmt.Errorf("abort: %w", err))
		}
	}
	if err := r.sink.Close(ctx); err != nil {
		errs = append(errs, fmt.Errorf("close sink: %w", err))
	}
	if err := errors.Join(errs...); err != nil { // all that counts is recorded
		r.o.ErrorHook(fmt.Errorf("pipeline %s: %w", r.name, err))
	}
}

func (r *run[T]) loop(ctx, work context.Context, in <-chan batch) error {
	r.start()
	timer := time.NewTimer(r.o.Interval)
	defer timer.Stop()
	for {
		timer.Reset(time.Until(r.due))
		select {
		case b := <-in:
			if b.err != nil {
				return b.err
			}
			if err := r.take(ctx, work, &b); err != nil {
				return err
			}
		case <-timer.C:
			if err := r.tick(work); err != nil {
				return err
			}
		case <-ctx.Done():
			return r.stop(work)
		}
	}
}

// tick is what happens when a checkpoint is due.
func (r *run[T]) tick(ctx context.Context) error {
	if r.input > 0 {
		return r.checkpoint(ctx)
	}
	r.due = time.Now().Add(r.o.Interval)
	return r.mark(ctx)
}

// stop takes the last checkpoint.
func (r *run[T]) stop(ctx context.Context) error {
	if r.input > 0 {
		if err := r.checkpoint(ctx); err != nil {
			return err
		}
	}
	if r.unmarked {
		return r.mark(ctx)
	}
	return nil
}

// start begins the next checkpoint's time.
func (r *run[T]) start() {
	r.input, r.output, r.bytes = 0, 0, 0
	r.recorded = false
	r.first = map[at]uint64{}
	r.held = map[*Source][]broker.Settlement{}
	r.due = time.Now().Add(r.o.Interval)
}

// full reports whether a checkpoint is due, by time or by what it holds.
func (r *run[T]) full() bool {
	return r.input >= uint64(r.o.MaxInput) || r.bytes+r.out.bytes >= r.o.MaxOutput || !time.Now().Before(r.due)
}

// take processes a batch. When ctx ends it leaves the rest of it.
func (r *run[T]) take(ctx, work context.Context, b *batch) error {
	for i := range b.deliveries {
		if ctx.Err() != nil {
			break
		}
		d := &b.deliveries[i]
		fresh, first, err := r.places.step(b.source, d.Position)
		if err != nil {
			return err
		}
		r.held[b.source] = append(r.held[b.source], broker.Settlement{Delivery: d, Action: broker.Ack})
		if !fresh {
			r.stats.dropped.Add(1)
			continue
		}
		if first {
			r.first[at{b.source.Name, b.source.Epoch, d.Position.Partition}] = d.Position.Offset
		}
		if r.input == 0 {
			r.opened = time.Now()
		}
		r.input++
		if err := r.process(work, b.source, d); err != nil {
			return err
		}
		if r.full() {
			if err := r.checkpoint(work); err != nil {
				return err
			}
		}
	}
	return r.write(work)
}

func (r *run[T]) process(ctx context.Context, s *Source, d *broker.Delivery) error {
	in := Input{s.Name, d.Message, d.Position}
	r.out.in, r.out.n = &in, 0
	r.out.prefix = append(r.out.prefix[:0], r.name, s.Name, "p"+d.Position.Partition+s.Epoch, strconv.FormatUint(d.Position.Offset, 10))
	if err := contain(func() error { return r.operator.Process(ctx, &in, &r.out) }); err != nil {
		return fmt.Errorf("message %q at %s/%s %d: %w", d.ID, s.Name, d.Position.Partition, d.Position.Offset, err)
	}
	return r.out.err
}

// write hands the output gathered so far to the sink.
func (r *run[T]) write(ctx context.Context) error {
	msgs := r.out.msgs
	if len(msgs) == 0 {
		return nil
	}
	r.output += uint64(len(msgs))
	r.bytes += r.out.bytes
	r.out.msgs, r.out.bytes = nil, 0 // the sink may keep them
	if err := r.sink.Write(ctx, msgs); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// contain runs f and makes an error of its panic.
func contain(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &broker.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

// ack tells the sources what is done with. Where it stands the checkpoint knows: an
// ack that is lost costs the group's lag, and nothing else.
func (r *run[T]) ack(ctx context.Context, held map[*Source][]broker.Settlement) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	for s, settles := range held {
		if err := r.receivers[s].Settle(ctx, settles); err != nil && !errors.Is(err, broker.ErrLeaseLost) {
			r.o.ErrorHook(fmt.Errorf("pipeline %s: ack to %s: %w", r.name, s.Name, err))
		}
	}
}
