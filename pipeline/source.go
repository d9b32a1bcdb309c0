package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/onceline/onceline/broker"
)

// Source is where a pipeline's input comes from: a subscription that can be opened
// at positions, which Kafka's consumer groups and RabbitMQ's streams can. It belongs
// to the pipeline alone: what another consumer of the group gets, the pipeline
// doesn't.
type Source struct {
	// Name is the source's in the checkpoints. A source of another name begins where
	// its broker says.
	Name string
	// Epoch tells the topic from an earlier one of its name, whose offsets mean
	// nothing any more. Empty where topics are never made again.
	Epoch string
	// Open opens a receiver with the option that the pipeline passes, which is
	// [broker.StartFrom]. The pipeline closes it.
	Open func(ctx context.Context, opts ...broker.ReceiverOption) (broker.Receiver, error)
	// Batch is how many messages a Receive asks for. Zero means 500.
	Batch int
}

// From is the source of a subscription, under whose name it is in the checkpoints.
func From(conn broker.Conn, subscription string) Source {
	return Source{Name: subscription, Open: func(ctx context.Context, opts ...broker.ReceiverOption) (broker.Receiver, error) {
		return conn.OpenReceiver(ctx, subscription, opts...)
	}}
}

// at is a partition of a source.
type at struct{ source, epoch, partition string }

// places is how far all partitions were processed. The sources' receivers ask it as
// partitions are assigned, beside the goroutine that processes.
type places struct {
	begun map[at]uint64 // where the checkpoint stood that was begun with
	mu    sync.Mutex
	next  map[at]uint64
}

func newPlaces(ps []Place) *places {
	m := map[at]uint64{}
	for _, p := range ps {
		m[at{p.Source, p.Epoch, p.Partition}] = p.Offset
	}
	return &places{begun: maps.Clone(m), next: m}
}

// startFrom is what [broker.StartFrom] takes. It answers with what was processed in
// this process, not with the last checkpoint: a partition that is taken away and
// comes back in the middle goes on where it was.
func (p *places) startFrom(s *Source) func(partition string) (broker.Position, bool) {
	return func(partition string) (broker.Position, bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		next, ok := p.next[at{s.Name, s.Epoch, partition}]
		return broker.Position{Partition: partition, Offset: next}, ok
	}
}

// step moves behind a message. Fresh is false for one that was processed before; first
// says that nothing of its partition ever was. ErrSource: it lies before everything
// that was asked for.
func (p *places) step(s *Source, pos broker.Position) (fresh, first bool, err error) {
	if pos.Token != "" {
		return false, false, broker.Errorf(broker.ErrUnsupported, nil, "source %s: its positions are no offsets", s.Name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := at{s.Name, s.Epoch, pos.Partition}
	next, known := p.next[key]
	switch {
	case known && pos.Offset < p.begun[key]:
		return false, false, fmt.Errorf("%w: source %s, partition %s: it was to begin at %d and gave %d", ErrSource, s.Name, pos.Partition, p.begun[key], pos.Offset)
	case known && pos.Offset < next:
		return false, false, nil
	}
	p.next[key] = pos.Offset + 1
	return true, !known, nil
}

// list returns all places.
func (p *places) list() []Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return listOf(p.next)
}

// batch is what one Receive brought.
type batch struct {
	source     *Source
	deliveries []broker.Delivery
	err        error
}

// feed reads a receiver and hands what it gets to the goroutine that processes, one
// batch at a time, until ctx ends or the receiver fails.
func feed(ctx context.Context, s *Source, r broker.Receiver, to chan<- batch) {
	size := s.Batch
	if size <= 0 {
		size = 500
	}
	for ctx.Err() == nil {
		ds, err := r.Receive(ctx, size)
		switch {
		case err != nil && ctx.Err() != nil:
			return
		case errors.Is(err, context.DeadlineExceeded), err == nil && len(ds) == 0:
			continue
		case err != nil:
			err = fmt.Errorf("source %s: %w", s.Name, err)
		}
		select {
		case to <- batch{s, ds, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}
