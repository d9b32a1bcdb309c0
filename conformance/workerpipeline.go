package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/onceline/onceline/conformance/report"
)

// pipelineSpec tells a worker of the pipeline that it runs until it is killed.
type pipelineSpec struct {
	Store    string        `json:"store"` // its name
	Address  string        `json:"address"`
	Sink     PipelineSink  `json:"sink"`
	From     string        `json:"from"`
	Source   string        `json:"source"`
	To       string        `json:"to"`
	Topic    string        `json:"topic"`
	Interval time.Duration `json:"interval"`
	Batch    int           `json:"batch"`
	Steps    time.Duration `json:"steps"`
	Away     time.Duration `json:"away"`
	Hold     PipelineStep  `json:"hold"` // at which it is held
	Skip     int           `json:"skip"` // so many of those steps pass before
}

// run runs the pipeline, and tells out when it is held.
func (s *pipelineSpec) run(ctx context.Context, out *json.Encoder) error {
	pipelines, err := pipelinesIn(workerStores, s.Store)
	if err != nil {
		return err
	}
	go func() { // ends with the probe's process
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		}
		os.Exit(0)
	}()
	held := make(chan struct{})
	left := s.Skip
	step := func(ctx context.Context, at PipelineStep) error {
		if at != s.Hold {
			return nil
		}
		if left--; left >= 0 {
			return nil
		}
		close(held)
		select {} // until it is killed
	}
	ended := make(chan error, 1)
	go func() {
		ended <- pipelines.Run(ctx, Pipeline{Address: s.Address, Sink: s.Sink, From: End{URL: s.From}, Source: s.Source, To: End{URL: s.To}, Topic: s.Topic,
			Interval: s.Interval, Batch: s.Batch, Steps: s.Steps, Away: s.Away, Step: step})
	}()
	if err := out.Encode(workerEvent{Event: "ready"}); err != nil {
		return err
	}
	select {
	case <-held:
		if err := out.Encode(workerEvent{Event: "held", Note: string(s.Hold)}); err != nil {
			return err
		}
		return <-ended
	case err := <-ended:
		return fmt.Errorf("the pipeline ended before it was held at %q: %w", s.Hold, err)
	}
}

// pipelinesIn finds those of a store.
func pipelinesIn(stores []Store, name string) (*Pipelines, error) {
	for _, s := range stores {
		if s.Kind == Checkpoints && s.Name == name {
			return s.Pipelines, nil
		}
	}
	return nil, fmt.Errorf("this program's RunIfWorker wasn't told of the store %s on %s", Checkpoints, name)
}

// killAt runs the pipeline in a process of its own until that is at a step, of which so
// many pass before, and kills it there.
func (p *piped) killAt(ctx context.Context, at PipelineStep, skip int) error {
	if p.p.To.URL == "" {
		return p.cutAt(ctx, at, skip)
	}
	w, err := p.process(ctx, "a pipeline", workerSpec{Pipeline: &pipelineSpec{Store: p.store.Name, Address: p.p.Address, Sink: p.p.Sink,
		From: p.p.From.URL, Source: p.p.Source, To: p.p.To.URL, Topic: p.p.Topic, Interval: p.p.Interval, Batch: p.p.Batch, Steps: p.p.Steps, Away: p.p.Away, Hold: at, Skip: skip}})
	if err != nil {
		return err
	}
	if _, err := w.next(ctx, "held"); err != nil {
		return err
	}
	p.history.Add(report.Store, Checkpoints, "", "the pipeline is held at the step %q", at)
	w.kill()
	return nil
}
