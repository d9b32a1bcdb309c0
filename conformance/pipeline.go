package conformance

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/onceline/onceline/broker"
)

// Checkpoints is the kind of the [Store] in which pipelines keep their checkpoints. It
// guards no effects: it has Pipelines, and no Open.
const Checkpoints = "checkpoints"

// Pipelines is a way to run pipelines that take checkpoints, as a value: the suite knows
// no package that has them.
type Pipelines struct {
	// Run runs a pipeline until ctx ends, and returns nil then. What makes it end
	// earlier it returns: [broker.ErrUnsupported] or [broker.ErrInvalid] where the sink
	// or the source can't do what is asked of it, before any input is read;
	// [ErrOutputLost] where output of a recorded checkpoint is gone.
	Run func(ctx context.Context, p Pipeline) error
	// Beside starts another broker than the one of that name, whose subscriptions can
	// be opened at a position, for a pipeline to read. Its instance has a URL.
	Beside func(ctx context.Context, than string) (*Instance, error)
}

// ErrOutputLost is what [Pipelines].Run returns when the broker has dropped output that a
// checkpoint had recorded.
var ErrOutputLost = errors.New("conformance: output of a checkpoint is lost")

// Pipeline is one to be run. For each message that it reads it publishes one with the
// same ID and key, whose body is the number, in decimal digits, that the message has
// among all that it has ever read: it counts them in a state that its checkpoints keep.
type Pipeline struct {
	Address string // of the store, as Make returned it
	Sink    PipelineSink
	From    End    // where it reads
	Source  string // the subscription there, which is the pipeline's alone
	To      End    // where it writes
	Topic   string // there
	// Interval is the time between checkpoints, Batch after how many messages one is
	// taken before its time; 0 for no such number.
	Interval time.Duration
	Batch    int
	// Steps bounds the steps of a checkpoint or recovery, and Away is for how long it
	// may be down without loss: together with Interval, what the broker is asked to keep
	// a transaction for.
	Steps, Away time.Duration
	// Rewind makes lost output again; otherwise a loss ends it.
	Rewind bool
	// Step is called at each step, and may block until ctx ends. Its error is what the
	// step then failed by. Nil is not called.
	Step func(ctx context.Context, s PipelineStep) error
	// Metric gets the values of the metrics, and Log what is logged.
	Metric func(name string, value float64)
	Log    *slog.Logger
}

// End is a broker as a pipeline reaches it.
type End struct {
	URL string // as broker.Open takes it
	// Open opens a connection where there is no URL.
	Open func(ctx context.Context) (broker.Conn, error)
}

// PipelineSink is a way in which a pipeline writes.
type PipelineSink string

// The sinks.
const (
	Transacted PipelineSink = "transacted" // in a transaction of the broker's, which is open over the checkpoint
	Relayed    PipelineSink = "relayed"    // into the store with the checkpoint, from where a relay sends it
)

// PipelineStep is a place in a pipeline's way at which a probe stops it.
type PipelineStep string

// The steps.
const (
	PipelineRead  PipelineStep = "read"     // a message was read
	Preparing     PipelineStep = "prepare"  // a checkpoint begins
	Prepared      PipelineStep = "prepared" // all output is with the broker, and nothing is recorded
	Recorded      PipelineStep = "recorded" // the checkpoint is in the store, and its output isn't committed
	Committed     PipelineStep = "committed"
	Resolved      PipelineStep = "resolved" // after a restart, what the last checkpoint had prepared was committed
	Marked        PipelineStep = "marked"   // and that is in the store
	PipelineRelay PipelineStep = "sent"     // a relay has sent, and the store doesn't know
)

// The metrics that a loss is counted in.
const (
	metricAbortRate = "kafka_transaction_abort_rate" // the share of transactions that were aborted
	metricLosses    = "pipeline_data_loss_total"
)
