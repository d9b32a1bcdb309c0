package sqs

import "github.com/onceline/onceline/broker/boundary"

// effects adds to e where the guarantees end on hop 3, beside what each configuration
// says of it.
func effects(e map[boundary.Claim]boundary.Entry) map[boundary.Claim]boundary.Entry {
	checkpoints(e)
	e[boundary.EffectCrashBefore] = boundary.Entry{
		Declared: boundary.Once, Sources: []string{"SQS-F-18"},
		Note: "It comes again when its lease has ended.",
	}
	e[boundary.EffectCrashAfterAck] = boundary.Entry{
		Declared: boundary.Once, Sources: []string{"SQS-F-24"},
		Note: "The ack is answered. In a standard queue it may come again all the same, rarely.",
	}
	e[boundary.EffectReplay] = boundary.Entry{
		Declared: boundary.Twice, Sources: []string{"SQS-F-05"},
		Note: "Another copy is another message to the broker, and keeps the ID: use a dedup store before anybody resubmits dead letters.",
	}
	e[boundary.EffectCommitUnknown] = boundary.Entry{
		Declared: boundary.Twice, Sources: []string{"SQS-F-18"},
		Note: "A retry applies it again, an ack without one may lose it: commit a marker with the effect.",
	}
	e[boundary.EffectRewind] = boundary.Entry{
		Declared: boundary.NotApplicable, Sources: []string{"SQS-F-18"},
		Note: "A receiver can't go back: StartFrom is ErrUnsupported.",
	}
	return transactions(boundary.Guarded(e, false, "SQS-F-18"))
}
