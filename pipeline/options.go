package pipeline

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/onceline/onceline/broker"
)

// Options says how a [Pipeline] works. The zero value is a good start.
type Options struct {
	// Interval is the time from one checkpoint to the next. With a [Transactional]
	// sink it is how much later its output is seen, at most, and half of it on
	// average (FLK-F-331). A short one costs more: each checkpoint is a snapshot of
	// the state, a transaction of the store and one of the sink. Zero means 10 s.
	Interval time.Duration
	// MaxInput is after how many messages a checkpoint is taken before its time,
	// so that memory and transactions stay bounded. Zero means 50,000.
	MaxInput int
	// MaxOutput is the same for bytes of the output's bodies. Zero means 64 MiB.
	MaxOutput int
	// MaxState refuses a larger snapshot, in bytes, which ends the pipeline. Zero
	// means 64 MiB.
	MaxState int
	// CheckpointTimeout bounds the steps of one checkpoint, and those of a recovery.
	// Zero means 1 min.
	CheckpointTimeout time.Duration
	// RestartBudget is how long the pipeline may be away, in the middle of a
	// checkpoint, without loss: from the crash until another process has recovered
	// what the sink had prepared. Together with Interval and CheckpointTimeout it
	// must fit into the time after which the sink's broker aborts what it holds; a
	// pipeline for which it doesn't doesn't begin ([ErrBudget]). Zero means 5 min.
	RestartBudget time.Duration
	// OnLoss says what is done when the broker has dropped what was prepared.
	OnLoss OnLoss
	// Restarts is how often, in a row and with no checkpoint in between, Run begins
	// anew after an error before it returns that. Zero means 10; a negative number
	// returns the first.
	Restarts int
	// Backoff is the pause before that. Zero means 100 ms to 30 s.
	Backoff broker.Backoff
	// StopTimeout is how long Run may take, after its context has ended, for the
	// message in hand and a last checkpoint. Then it is cut, and the next Run
	// begins at the last checkpoint. Zero means 30 s.
	StopTimeout time.Duration
	// Keep is how many checkpoints the store keeps. Zero means 3, and no fewer than
	// 2 are kept: RewindOnLoss needs the one before the last.
	Keep int

	// Loss is called with each loss, before Run goes on or returns. Nil is no
	// silence: each is logged as an error too.
	Loss func(Loss)
	// Checkpointed is called after each checkpoint.
	Checkpointed func(Info)
	// ErrorHook gets what Run begins anew for, and what harms nothing (an ack that
	// was lost). Nil logs a warning.
	ErrorHook func(error)
	// Metric gets a value whenever one changes; the names are the Metric constants.
	Metric func(name string, value float64)
	// Log is where losses, recoveries and takeovers are told. Nil takes
	// slog.Default.
	Log *slog.Logger
	// Rand returns numbers in [0, 1) for the jitter. Nil takes math/rand/v2.
	Rand func() float64
}

// OnLoss says what a pipeline does when its sink's broker has dropped the output of a
// checkpoint after the checkpoint was recorded: its transaction was open for longer
// than the broker allows, or somebody else opened its ID.
type OnLoss uint8

const (
	// StopOnLoss makes Run return [ErrDataLoss], and so does each later Run, until
	// one has another choice: the checkpoint stays as it is. It is the default.
	StopOnLoss OnLoss = iota
	// RewindOnLoss goes back to the checkpoint before and makes the output again,
	// where that is safe: the broker says for sure that nothing of it was committed,
	// and nothing else was committed with the record. Where it isn't, it is like
	// StopOnLoss. The sources must still have the input.
	RewindOnLoss
	// ContinueOnLoss goes on without the output, as Flink's sink does (FLK-F-333).
	// The loss is told all the same.
	ContinueOnLoss
)

func (o OnLoss) String() string {
	names := [...]string{"stop", "rewind", "continue"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("OnLoss(%d)", uint8(o))
}

func (o Options) withDefaults() (Options, error) {
	some := func(d *time.Duration, zero time.Duration) {
		if *d == 0 {
			*d = zero
		}
	}
	some(&o.Interval, 10*time.Second)
	some(&o.CheckpointTimeout, time.Minute)
	some(&o.RestartBudget, 5*time.Minute)
	some(&o.StopTimeout, 30*time.Second)
	some(&o.Backoff.Min, 100*time.Millisecond)
	some(&o.Backoff.Max, 30*time.Second)
	o.Backoff.Max = max(o.Backoff.Max, o.Backoff.Min)
	for n, zero := range map[*int]int{&o.MaxInput: 50_000, &o.MaxOutput: 64 << 20, &o.MaxState: 64 << 20, &o.Restarts: 10, &o.Keep: 3} {
		if *n == 0 {
			*n = zero
		}
	}
	o.Keep = max(o.Keep, 2)
	if o.Interval < 0 || o.CheckpointTimeout < 0 || o.RestartBudget < 0 || o.StopTimeout < 0 || o.MaxInput < 0 || o.MaxOutput < 0 || o.MaxState < 0 || o.OnLoss > ContinueOnLoss {
		return o, broker.Errorf(broker.ErrInvalid, nil, "pipeline: interval %v, checkpoint timeout %v, restart budget %v, stop timeout %v, at most %d messages, %d bytes, %d bytes of state, on loss %v",
			o.Interval, o.CheckpointTimeout, o.RestartBudget, o.StopTimeout, o.MaxInput, o.MaxOutput, o.MaxState, o.OnLoss)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.ErrorHook == nil {
		o.ErrorHook = func(err error) { o.Log.Warn("pipeline", "error", err) }
	}
	if o.Metric == nil {
		o.Metric = func(string, float64) {}
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	return o, nil
}

// need is how long what the sink has prepared may have to live: a transaction that
// began right after a checkpoint is open until the next one is due, and for that
// one's steps; if the process dies before the commit, until another has recovered it.
func (o *Options) need() time.Duration { return o.Interval + o.CheckpointTimeout + o.RestartBudget }
