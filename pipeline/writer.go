package pipeline

import (
	"context"
	"fmt"
	"sync"

	"github.com/onceline/onceline/broker"
)

// writer publishes beside the goroutine that processes: one call of Publish for each
// topic is under way, while the next batch grows, so that neither waits for a round
// trip. Messages of a topic leave in the order in which they were written.
type writer struct {
	work chan job
	quit context.CancelFunc
	life context.Context
	done sync.WaitGroup
	once sync.Once

	mu     sync.Mutex
	failed error // what is written after it is dropped, for the checkpoint is lost
}

// job is messages to publish, or a question when all before are published.
type job struct {
	tx      broker.Transaction
	msgs    []Output
	flushed chan<- error
}

// maxPublish is how many messages a Publish has at most, and maxJobs how many
// batches may wait for it.
const (
	maxPublish = 5_000
	maxJobs    = 8
)

func newWriter() *writer {
	w := &writer{work: make(chan job, maxJobs)}
	w.life, w.quit = context.WithCancel(context.Background())
	w.done.Go(w.run)
	return w
}

// write adds messages. It waits while too many batches do, and returns the error of an
// earlier one, after which only stop is left.
func (w *writer) write(ctx context.Context, tx broker.Transaction, msgs []Output) error {
	if err := w.failure(); err != nil {
		return err
	}
	return w.send(ctx, job{tx: tx, msgs: msgs})
}

// flush waits until all is published.
func (w *writer) flush(ctx context.Context, tx broker.Transaction) error {
	flushed := make(chan error, 1)
	if err := w.send(ctx, job{tx: tx, flushed: flushed}); err != nil {
		return err
	}
	select {
	case err := <-flushed:
		return err
	case <-w.life.Done():
		return errStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errStopped = broker.Errorf(broker.ErrClosed, nil, "the sink's writer")

func (w *writer) send(ctx context.Context, j job) error {
	select {
	case w.work <- j:
		return nil
	case <-w.life.Done():
		return errStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stop ends the goroutine, cutting what is under way, and waits for it.
func (w *writer) stop() {
	w.once.Do(w.quit)
	w.done.Wait()
}

func (w *writer) run() {
	for {
		select {
		case j := <-w.work:
			w.handle(j)
		case <-w.life.Done():
			return
		}
	}
}

// handle publishes a job and all that wait behind it, up to the next flush.
func (w *writer) handle(j job) {
	msgs := j.msgs
	for j.flushed == nil && len(msgs) < maxPublish {
		select {
		case next := <-w.work:
			j.flushed = next.flushed
			msgs = append(msgs, next.msgs...)
			continue
		default:
		}
		break
	}
	err := w.failure()
	if err == nil {
		if err = publish(w.life, j.tx, msgs); err != nil {
			w.mu.Lock()
			w.failed = err
			w.mu.Unlock()
		}
	}
	if j.flushed != nil {
		j.flushed <- err
	}
}

func (w *writer) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// publish publishes messages, each topic's at once.
func publish(ctx context.Context, tx broker.Transaction, msgs []Output) error {
	var topics []string
	byTopic := map[string][]broker.Message{}
	for i := range msgs {
		topic := msgs[i].Topic
		if _, ok := byTopic[topic]; !ok {
			topics = append(topics, topic)
		}
		byTopic[topic] = append(byTopic[topic], msgs[i].Message)
	}
	for _, topic := range topics {
		all := byTopic[topic]
		receipts, err := tx.Publish(ctx, topic, all...)
		if err != nil {
			for i, r := range receipts {
				if !r.Verdict.OK() {
					return fmt.Errorf("message %q to %s: %v: %w", all[i].ID, topic, r.Verdict, err)
				}
			}
			return fmt.Errorf("%s: %w", topic, err)
		}
	}
	return nil
}
