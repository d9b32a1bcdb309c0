package pipeline

import (
	"sync/atomic"
	"time"
)

// The names that Options.Metric is called with.
const (
	// MetricAbortRate is the share of the sink's transactions that were aborted, from
	// 0 to 1, since the pipeline was made: for failures, and those that the broker
	// aborted. A broker's own metric of that name counts all of its clients'.
	MetricAbortRate = "kafka_transaction_abort_rate"
	// MetricLosses counts losses.
	MetricLosses = "pipeline_data_loss_total"
	// MetricLostMessages counts the messages of output that were lost.
	MetricLostMessages = "pipeline_data_loss_messages_total"
	// MetricRestarts counts begins after an error.
	MetricRestarts = "pipeline_restarts_total"
	// MetricCheckpointSeconds is how long the last checkpoint took.
	MetricCheckpointSeconds = "pipeline_checkpoint_duration_seconds"
	// MetricCheckpointBytes is the size of its record.
	MetricCheckpointBytes = "pipeline_checkpoint_bytes"
	// MetricHeldSeconds is how long the oldest output of the last checkpoint had
	// waited when it became visible.
	MetricHeldSeconds = "pipeline_output_held_seconds"
)

// Info is one checkpoint that is complete.
type Info struct {
	Number        int64
	Input, Output uint64 // messages since the checkpoint before
	Bytes         int    // of the record
	// Took is the time of its steps. Held is how long the first message's output
	// had waited until it was committed.
	Took, Held time.Duration
}

// Stats counts what a pipeline did since it was made.
type Stats struct {
	// Input and Output count messages, by checkpoints that are complete, those that
	// were recovered included.
	Input, Output uint64
	Checkpoints   uint64
	// Dropped counts messages that came again and were processed already.
	Dropped uint64
	// Recovered counts prepared checkpoints of an earlier process, or an earlier
	// begin, that were committed.
	Recovered uint64
	// Aborted counts outputs that were taken back, Losses those that were recorded.
	Aborted, Losses, LostMessages uint64
	Restarts                      uint64
}

// Add returns the sums of s and o.
func (s Stats) Add(o Stats) Stats {
	return Stats{
		Input: s.Input + o.Input, Output: s.Output + o.Output, Checkpoints: s.Checkpoints + o.Checkpoints, Dropped: s.Dropped + o.Dropped, Recovered: s.Recovered + o.Recovered,
		Aborted: s.Aborted + o.Aborted, Losses: s.Losses + o.Losses, LostMessages: s.LostMessages + o.LostMessages, Restarts: s.Restarts + o.Restarts,
	}
}

// AbortRate is what [MetricAbortRate] says: the share of the sink's transactions that were
// aborted, from 0 to 1.
func (s Stats) AbortRate() float64 {
	all := s.Aborted + s.Checkpoints + s.Recovered
	if all == 0 {
		return 0
	}
	return float64(s.Aborted) / float64(all)
}

type counters struct {
	input, output, checkpoints, dropped, recovered, aborted, losses, lost, restarts atomic.Uint64
}

// Stats returns the counts so far. It is safe for concurrent use.
func (p *Pipeline[T]) Stats() Stats {
	c := &p.stats
	return Stats{
		Input: c.input.Load(), Output: c.output.Load(), Checkpoints: c.checkpoints.Load(), Dropped: c.dropped.Load(), Recovered: c.recovered.Load(),
		Aborted: c.aborted.Load(), Losses: c.losses.Load(), LostMessages: c.lost.Load(), Restarts: c.restarts.Load(),
	}
}

// ended tells the rate after a transaction has ended.
func (p *Pipeline[T]) ended(aborted bool) {
	if aborted {
		p.stats.aborted.Add(1)
	}
	p.o.Metric(MetricAbortRate, p.Stats().AbortRate())
}
