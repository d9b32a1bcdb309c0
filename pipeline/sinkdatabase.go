package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// Database is the sink that writes into the pipeline's own store: apply gets a
// checkpoint's output, in order, and the transaction of the checkpoint's record, so
// that output, positions and state are committed in one. There is nothing to prepare
// and nothing that could be lost between two systems.
//
// The output waits in memory until then: Options.MaxOutput and MaxInput bound it.
// Apply is called again when the transaction is tried again, and must do nothing
// outside of it.
func Database[T any](apply func(ctx context.Context, tx T, msgs []Output) error) Sink[T] {
	return &inStore[T]{kind: "database", apply: apply, committed: func() {}, closed: func(context.Context) error { return nil }}
}

// Outbox is the sink for brokers without transactions: the output goes into the
// outbox of the pipeline's own store with the checkpoint's record, from which a
// [dedup.Relay] for each topic, here or elsewhere, sends it under the IDs that it
// has. It is sent at least once and in order of its keys; copies are found by the
// broker's own window, or by the consumer's inbox.
func Outbox[T any](d dedup.OutboxDriver[T], o dedup.OutboxOptions) Sink[T] {
	outboxes := map[string]*dedup.Outbox[T]{}
	var used []*dedup.Outbox[T] // by the present checkpoint
	return &inStore[T]{
		kind: "outbox",
		apply: func(ctx context.Context, tx T, msgs []Output) error {
			used = used[:0]
			var topics []string // in order, so that transactions meet locks in one
			byTopic := map[string][]broker.Message{}
			for i := range msgs {
				topic := msgs[i].Topic
				if topic == "" {
					return broker.Errorf(broker.ErrInvalid, nil, "message %q has no topic", msgs[i].ID)
				}
				if byTopic[topic] == nil {
					topics = append(topics, topic)
				}
				byTopic[topic] = append(byTopic[topic], msgs[i].Message)
			}
			slices.Sort(topics)
			for _, topic := range topics {
				out := outboxes[topic]
				if out == nil {
					out = dedup.NewOutbox(d, topic, o)
					outboxes[topic] = out
				}
				if err := out.AddTx(ctx, tx, byTopic[topic]...); err != nil {
					return err
				}
				used = append(used, out)
			}
			return nil
		},
		committed: func() {
			for _, out := range used {
				out.Notify()
			}
		},
		closed: func(ctx context.Context) error {
			var first error
			for _, out := range outboxes {
				if err := out.Close(ctx); err != nil && first == nil {
					first = err
				}
			}
			clear(outboxes)
			return first
		},
	}
}

// inStore gathers a checkpoint's output and writes it with the record.
type inStore[T any] struct {
	kind      string
	apply     func(ctx context.Context, tx T, msgs []Output) error
	committed func()
	closed    func(ctx context.Context) error
	msgs      []Output
}

func (s *inStore[T]) Kind() string                                    { return s.kind }
func (s *inStore[T]) InStore() bool                                   { return true }
func (s *inStore[T]) Check(time.Duration) error                       { return nil }
func (s *inStore[T]) Open(context.Context, []byte) ([]byte, error)    { s.msgs = nil; return nil, nil }
func (s *inStore[T]) Prepare(context.Context) (token []byte, _ error) { return nil, nil }
func (s *inStore[T]) Abort(context.Context) error                     { s.msgs = nil; return nil }

// Recover is never asked for a token that this sink made, for it makes none.
func (s *inStore[T]) Recover(context.Context, []byte) (Fate, error) {
	return FateOpen, broker.Errorf(broker.ErrInvalid, nil, "a sink of kind %s prepares nothing", s.kind)
}

func (s *inStore[T]) Write(_ context.Context, msgs []Output) error {
	s.msgs = append(s.msgs, msgs...)
	return nil
}

func (s *inStore[T]) Record(ctx context.Context, tx T) error {
	if len(s.msgs) == 0 {
		return nil
	}
	if err := contain(func() error { return s.apply(ctx, tx, s.msgs) }); err != nil {
		return fmt.Errorf("%s sink: %w", s.kind, err)
	}
	return nil
}

func (s *inStore[T]) Commit(context.Context) (Fate, error) {
	s.msgs = nil
	s.committed()
	return FateCommitted, nil
}

func (s *inStore[T]) Close(ctx context.Context) error {
	s.msgs = nil
	return s.closed(ctx)
}
