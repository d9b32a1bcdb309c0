package targets_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/pipeline"
)

type sink = pipeline.Sink[*sql.Tx]

// wrongPipelines are the ways in which sinks are written that lose output or make it
// twice.
func wrongPipelines() []conformance.Store {
	return []conformance.Store{
		targets.WrongPipelines("published as it is made", func(p conformance.Pipeline, to broker.Conn, s sink) sink {
			return &published{sink: s, to: to, topic: p.Topic}
		}, nil),
		targets.WrongPipelines("committed before the record", func(_ conformance.Pipeline, _ broker.Conn, s sink) sink { return &hasty{s} }, nil),
		targets.WrongPipelines("aborted in the recovery", func(_ conformance.Pipeline, to broker.Conn, s sink) sink { return &anew{s, to} }, nil),
		targets.WrongPipelines("silent at a loss", func(_ conformance.Pipeline, _ broker.Conn, s sink) sink { return &silent{s} }, nil),
		targets.WrongPipelines("without a check at the start", func(_ conformance.Pipeline, _ broker.Conn, s sink) sink { return &careless{s} }, nil),
		targets.WrongPipelines("published behind the record", func(p conformance.Pipeline, to broker.Conn, s sink) sink {
			if p.Sink != conformance.Relayed {
				return s
			}
			return &late{published: published{sink: s, to: to, topic: p.Topic}, step: p.Step}
		}, nil),
		targets.WrongPipelines("relayed as a new copy each time", nil, func(p broker.Publisher) broker.Publisher { return &copying{p} }),
	}
}

// published is a sink that publishes outside of a transaction.
type published struct {
	sink
	to    broker.Conn
	topic string
	pub   broker.Publisher
}

func (s *published) Write(ctx context.Context, msgs []pipeline.Output) (err error) {
	if s.pub == nil {
		if s.pub, err = s.to.OpenPublisher(ctx, s.topic); err != nil {
			return err
		}
	}
	for _, m := range msgs {
		if _, err := s.pub.Publish(ctx, m.Message); err != nil {
			return err
		}
	}
	return nil
}

func (s *published) Prepare(context.Context) ([]byte, error) { return nil, nil }
func (s *published) Record(context.Context, *sql.Tx) error   { return nil }
func (s *published) Commit(context.Context) (pipeline.Fate, error) {
	return pipeline.FateCommitted, nil
}
func (s *published) Abort(context.Context) error { return nil }

func (s *published) Close(ctx context.Context) error {
	if s.pub != nil {
		_ = s.pub.Close(ctx)
		s.pub = nil
	}
	return s.sink.Close(ctx)
}

// late is a sink that publishes when the checkpoint is recorded, with no outbox.
type late struct {
	published
	step func(ctx context.Context, at conformance.PipelineStep) error
	msgs []pipeline.Output
}

func (s *late) Write(_ context.Context, msgs []pipeline.Output) error {
	s.msgs = append(s.msgs, msgs...)
	return nil
}

func (s *late) Commit(ctx context.Context) (pipeline.Fate, error) {
	if err := s.published.Write(ctx, s.msgs); err != nil {
		return pipeline.FateOpen, err
	}
	s.msgs = nil
	if err := s.step(ctx, conformance.PipelineRelay); err != nil {
		return pipeline.FateOpen, err
	}
	return pipeline.FateCommitted, nil
}

// hasty commits as soon as all is prepared.
type hasty struct{ sink }

func (s *hasty) Prepare(ctx context.Context) ([]byte, error) {
	token, err := s.sink.Prepare(ctx)
	if err == nil && token != nil {
		_, err = s.sink.Commit(ctx)
	}
	return token, err
}

func (s *hasty) Commit(context.Context) (pipeline.Fate, error) { return pipeline.FateCommitted, nil }

// anew begins anew in a recovery, which aborts what was prepared.
type anew struct {
	sink
	to broker.Conn
}

func (s *anew) Recover(ctx context.Context, token []byte) (pipeline.Fate, error) {
	if o, err := broker.RecoverTransaction(ctx, s.to, token, false); o.State == broker.Unknown {
		return pipeline.FateOpen, err
	}
	return pipeline.FateCommitted, nil
}

// silent takes what was dropped for committed, and goes on.
type silent struct{ sink }

func (s *silent) Recover(ctx context.Context, token []byte) (pipeline.Fate, error) {
	fate, err := s.sink.Recover(ctx, token)
	if fate == pipeline.FateAborted {
		return pipeline.FateCommitted, nil
	}
	return fate, err
}

// careless asks the broker for what it allows, whatever is needed.
type careless struct{ sink }

func (s *careless) Check(need time.Duration) error { return s.sink.Check(min(need, 10*time.Minute)) }

// copying marks each attempt as a copy that is meant.
type copying struct{ broker.Publisher }

var copies atomic.Int64

func (p *copying) Publish(ctx context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	for i := range msgs {
		msgs[i].Copy = fmt.Sprint(time.Now().UnixNano(), copies.Add(1))
	}
	return p.Publisher.Publish(ctx, msgs...)
}

// wrongByPipeline says by which claims a wrong pipeline is seen, and what they answer.
var wrongByPipeline = []struct {
	name   string
	target func() conformance.Target
	claim  boundary.Claim
	want   boundary.Answer
}{
	{"published as it is made", targets.KafkaGroup, boundary.CheckpointVisibility, boundary.Early},
	{"published as it is made", targets.KafkaGroup, boundary.PipelineCrossBroker, boundary.Twice},
	{"committed before the record", targets.KafkaGroup, boundary.CheckpointRecovery, boundary.Twice},
	{"aborted in the recovery", targets.KafkaGroup, boundary.CheckpointRecovery, boundary.Lost},
	{"silent at a loss", targets.KafkaGroup, boundary.CheckpointTimeoutLoss, boundary.LostInSilence},
	{"without a check at the start", targets.KafkaGroup, boundary.CheckpointTimeoutLoss, boundary.LostUnforeseen},
	{"committed before the record", targets.KafkaGroup, boundary.CheckpointTimeoutLoss, boundary.Kept},
	{"published behind the record", memoryTarget, boundary.PipelineCrossBroker, boundary.Lost},
	{"relayed as a new copy each time", memoryTarget, boundary.PipelineCrossBroker, boundary.Twice},
}

// TestEachWrongPipelineIsSeen: a pipeline whose sink is written in one of the usual wrong
// ways gives another answer, and the right one.
func TestEachWrongPipelineIsSeen(t *testing.T) {
	byName := map[string]conformance.Store{}
	for _, s := range wrongPipelines() {
		byName[s.Name] = s
	}
	for _, c := range wrongByPipeline {
		t.Run(c.name+"/"+string(c.claim), func(t *testing.T) {
			t.Parallel()
			target := c.target()
			target.Stores = []conformance.Store{byName[c.name]}
			r, err := conformance.Run(t.Context(), target, conformance.Options{Claims: []string{string(c.claim)}, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			f := r.Targets[0].Findings[0]
			if f.Observed != string(c.want) || !f.Verdict.Fails() {
				t.Errorf("%s, %q: %s; want %q", f.Verdict, f.Observed, f.Reason, c.want)
			}
		})
	}
}

func memoryTarget() conformance.Target { return targets.Memory() }
