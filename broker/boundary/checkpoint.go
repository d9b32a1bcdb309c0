package boundary

import "slices"

// The claims about pipelines that take checkpoints, as those of package pipeline do:
// what they read, what they remember and what they write, kept together.
const (
	CheckpointVisibility  Claim = "checkpoint.visibility"
	CheckpointTimeoutLoss Claim = "checkpoint.timeout-loss"
	CheckpointRecovery    Claim = "checkpoint.recovery"
	PipelineCrossBroker   Claim = "pipeline.cross-broker"
)

// Their answers, beside those that other claims have too.
const (
	AfterCheckpoint Answer = "after-checkpoint"
	LostInSilence   Answer = "lost-in-silence"
	LostUnforeseen  Answer = "lost-unforeseen"
	LostAndTold     Answer = "lost-and-told"
)

// Unprepared adds to entries what an adapter declares whose transactions can't be kept
// over a checkpoint: why says what they lack. A pipeline writes to such a broker by an
// outbox in its own store, with which nothing of a checkpoint is the broker's to lose.
func Unprepared(entries map[Claim]Entry, why string, sources ...string) map[Claim]Entry {
	for claim, instead := range map[Claim]string{
		CheckpointVisibility:  " A pipeline with an Outbox sink writes to it: its output is in the store with the checkpoint, and sent after it.",
		CheckpointTimeoutLoss: " With an Outbox sink the broker holds nothing that it could abort.",
		CheckpointRecovery:    " With an Outbox sink a checkpoint is one transaction of the store; how often its output is sent is pipeline.cross-broker.",
	} {
		entries[claim] = Entry{Declared: Unsupported, Sources: slices.Clone(sources), Note: why + instead}
	}
	return entries
}

// Relayed adds what it declares of a pipeline that writes to it by an outbox and a relay:
// once where it finds a copy that comes under the same ID from another producer, twice
// where it doesn't.
func Relayed(entries map[Claim]Entry, finds bool, note string, sources ...string) map[Claim]Entry {
	e := Entry{Declared: Twice, Sources: slices.Clone(sources), Note: note}
	if finds {
		e.Declared = Once
	}
	entries[PipelineCrossBroker] = e
	return entries
}
