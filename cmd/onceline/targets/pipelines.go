package targets

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/pipeline"
)

// checkpointStores are where the probes' pipelines keep their checkpoints. Which store that
// is isn't what they ask: package pipeline's own tests take PostgreSQL too.
func checkpointStores() []conformance.Store {
	return []conformance.Store{{Kind: conformance.Checkpoints, Name: "sqlite", Make: makeFolder,
		Pipelines: &conformance.Pipelines{Run: pipes{}.run, Beside: beside}}}
}

// beside starts a broker for a pipeline to read which isn't the one that it writes to.
func beside(ctx context.Context, than string) (*conformance.Instance, error) {
	if than == "kafka" {
		return RabbitMQStream().Start(ctx)
	}
	return KafkaGroup().Start(ctx)
}

// pipes is how pipelines are run; what isn't nil breaks them, to test the probes.
type pipes struct {
	sink    func(r *piping, s pipeline.Sink[*sql.Tx]) pipeline.Sink[*sql.Tx]
	publish func(p broker.Publisher) broker.Publisher // of the relay
}

// pipelineStop bounds the end of a pipeline, which has little to do.
const pipelineStop = 5 * time.Second

// piping is one that runs.
type piping struct {
	conformance.Pipeline
	store    *sqlite.Store
	from, to broker.Conn
}

// run implements the Run of [conformance.Pipelines] by package pipeline.
func (ps pipes) run(ctx context.Context, p conformance.Pipeline) (err error) {
	r := &piping{Pipeline: p}
	if p.Step == nil {
		r.Step = func(context.Context, conformance.PipelineStep) error { return nil }
	}
	if r.store, err = sqlite.Open(ctx, filepath.Join(p.Address, "checkpoints.db"), sqlite.Options{BusyTimeout: 20 * time.Second}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.store.Close()) }()
	for end, conn := range map[*conformance.End]*broker.Conn{&p.From: &r.from, &p.To: &r.to} {
		if *conn, err = reach(ctx, end); err != nil {
			return err
		}
		defer func() {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			err = errors.Join(err, (*conn).Close(closing))
		}()
	}
	sink := pipeline.Transactional[*sql.Tx](r.to, p.Topic, pipeline.TransactionalOptions{})
	if p.Sink == conformance.Relayed {
		sink = pipeline.Outbox(r.store, dedup.OutboxOptions{})
	}
	if ps.sink != nil {
		sink = ps.sink(r, sink)
	}
	made, err := pipeline.New(pipeline.Config[*sql.Tx]{Name: "probe", Store: r.store, Sources: []pipeline.Source{pipeline.From(r.from, p.Source)},
		Operator: r.numbering(), Sink: &stepping{Sink: sink, step: r.Step}, Options: r.options()})
	if err != nil {
		return err
	}
	if p.Sink != conformance.Relayed {
		return told(made.Run(ctx))
	}
	return r.relayed(ctx, ps, made)
}

// reach opens an end. A static member of a group of Kafka's takes the place of the one
// that was killed; another one would wait until its session ends.
func reach(ctx context.Context, end *conformance.End) (broker.Conn, error) {
	if end.URL == "" {
		return end.Open(ctx)
	}
	url := end.URL
	if strings.HasPrefix(url, "kafka") && !strings.Contains(url, "mode=share") {
		url = join(url, "?instance=pipeline")
	}
	return broker.Open(ctx, url)
}

// numbering is the operator that [conformance.Pipeline] describes.
func (r *piping) numbering() pipeline.Operator {
	var count pipeline.JSON[int]
	return pipeline.Operator{State: &count, Process: func(ctx context.Context, in *pipeline.Input, out *pipeline.Out) error {
		if err := r.Step(ctx, conformance.PipelineRead); err != nil {
			return err
		}
		count.Value++
		out.Emit(r.Topic, broker.Message{ID: in.ID, Key: in.Key, Body: []byte(strconv.Itoa(count.Value))})
		return nil
	}}
}

func (r *piping) options() pipeline.Options {
	o := pipeline.Options{Interval: r.Interval, MaxInput: r.Batch, CheckpointTimeout: r.Steps, RestartBudget: r.Away, Metric: r.Metric, Log: r.Log, StopTimeout: pipelineStop,
		Backoff: broker.Backoff{Min: 10 * time.Millisecond, Max: 200 * time.Millisecond}}
	if r.Rewind {
		o.OnLoss = pipeline.RewindOnLoss
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// relayed runs the pipeline, and beside it a relay of its outbox.
func (r *piping) relayed(ctx context.Context, ps pipes, made *pipeline.Pipeline[*sql.Tx]) error {
	p, err := r.to.OpenPublisher(ctx, r.Topic)
	if err != nil {
		return err
	}
	if ps.publish != nil {
		p = ps.publish(p)
	}
	// A lane of a relay that was killed is free after a lease that this is a part of.
	relay := dedup.NewRelay(r.store, r.Topic, &sending{p, r.Step}, dedup.RelayOptions{Workers: 1, Poll: 20 * time.Millisecond, PublishTimeout: time.Second, StopTimeout: pipelineStop,
		Backoff: broker.Backoff{Min: 10 * time.Millisecond, Max: 200 * time.Millisecond}, ErrorHook: func(err error) { r.options().Log.Warn("relay", "error", err) }})
	both, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		defer stop()
		ended <- relay.Run(both)
	}()
	err = told(made.Run(both))
	stop()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(err, <-ended, p.Close(closing))
}

// told makes a loss one that the suite knows.
func told(err error) error {
	if errors.Is(err, pipeline.ErrDataLoss) {
		return fmt.Errorf("%w: %w", conformance.ErrOutputLost, err)
	}
	return err
}

// stepping tells of a sink's steps.
type stepping struct {
	pipeline.Sink[*sql.Tx]
	step     func(ctx context.Context, at conformance.PipelineStep) error
	resolved bool
}

func (s *stepping) Prepare(ctx context.Context) ([]byte, error) {
	if err := s.step(ctx, conformance.Preparing); err != nil {
		return nil, err
	}
	token, err := s.Sink.Prepare(ctx)
	if err == nil {
		err = s.step(ctx, conformance.Prepared)
	}
	return token, err
}

func (s *stepping) Commit(ctx context.Context) (pipeline.Fate, error) {
	if err := s.step(ctx, conformance.Recorded); err != nil {
		return pipeline.FateOpen, err
	}
	fate, err := s.Sink.Commit(ctx)
	if fate == pipeline.FateCommitted {
		if err := s.step(ctx, conformance.Committed); err != nil {
			return pipeline.FateOpen, err
		}
	}
	return fate, err
}

func (s *stepping) Recover(ctx context.Context, token []byte) (pipeline.Fate, error) {
	fate, err := s.Sink.Recover(ctx, token)
	if fate == pipeline.FateCommitted {
		s.resolved = true
		if err := s.step(ctx, conformance.Resolved); err != nil {
			return pipeline.FateOpen, err
		}
	}
	return fate, err
}

func (s *stepping) Open(ctx context.Context, before []byte) ([]byte, error) {
	if s.resolved {
		s.resolved = false
		if err := s.step(ctx, conformance.Marked); err != nil {
			return nil, err
		}
	}
	return s.Sink.Open(ctx, before)
}

// sending tells when a relay's publisher has sent.
type sending struct {
	broker.Publisher
	step func(ctx context.Context, at conformance.PipelineStep) error
}

func (s *sending) Publish(ctx context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	receipts, err := s.Publisher.Publish(ctx, msgs...)
	if err != nil {
		return receipts, err
	}
	if err := s.step(ctx, conformance.PipelineRelay); err != nil {
		for i := range receipts {
			receipts[i] = broker.Receipt{Verdict: broker.Unknown, Err: broker.Errorf(broker.ErrUnknownOutcome, err, "publish %q", msgs[i].ID)}
		}
		return receipts, receipts[0].Err
	}
	return receipts, nil
}
