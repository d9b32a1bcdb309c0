package conformance

import "github.com/onceline/onceline/broker/boundary"

// checkpointClaims are those about pipelines that take checkpoints.
var checkpointClaims = []Claim{
	{boundary.CheckpointVisibility, 3,
		"A pipeline keeps a transaction of this broker open until its checkpoint is recorded: when do readers see its output?",
		answers(boundary.Unsupported, boundary.Never, boundary.Early, boundary.AfterCheckpoint),
		"Output that is seen only behind a checkpoint is late by up to the interval; output that is seen before it comes again after a crash."},
	{boundary.CheckpointTimeoutLoss, 3,
		"A pipeline dies behind a checkpoint, and is away for longer than the broker keeps its transaction: what becomes of the output, and who says so?",
		answers(boundary.Unsupported, boundary.LostInSilence, boundary.LostUnforeseen, boundary.LostAndTold, boundary.Kept),
		"The checkpoint counts on output that the broker has dropped: unless somebody says so, it is missed when it is too late to make it again."},
	{boundary.CheckpointRecovery, 3,
		"A pipeline is killed at each step of a checkpoint and of a recovery: how often is each message counted, and how often is its output there?",
		answers(boundary.Unsupported, boundary.Lost, boundary.Twice, boundary.Once),
		"To commit what was recorded and abort what wasn't is the whole of two phases; a client that begins anew before it has looked aborts both."},
	{boundary.PipelineCrossBroker, 3,
		"A pipeline reads another broker and writes to this one, and is killed at each step: how often is its output there?",
		answers(boundary.Lost, boundary.Twice, boundary.Once),
		"No transaction spans two brokers: what makes it once is a store between them, and either a transaction or a memory of IDs at the far side."},
}
