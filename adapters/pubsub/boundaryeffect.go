package pubsub

import "github.com/onceline/onceline/broker/boundary"

// effects adds to e where the guarantees end on hop 3, beside what each configuration
// says of it.
func effects(e map[boundary.Claim]boundary.Entry) map[boundary.Claim]boundary.Entry {
	checkpoints(e)
	e[boundary.EffectCrashBefore] = boundary.Entry{
		Declared: boundary.Once, Sources: []string{"PS-F-09"},
		Note: "It comes again when its lease has ended.",
	}
	e[boundary.EffectCrashAfterAck] = boundary.Entry{
		Declared: boundary.Once, Sources: []string{"PS-F-08", "PS-F-09"},
		Note: "Without exactly-once delivery an ack is a request that may be lost, and the message comes again.",
	}
	e[boundary.EffectReplay] = boundary.Entry{
		Declared: boundary.Twice, Sources: []string{"PS-F-01"},
		Note: "Another copy is another message to the broker, and keeps the ID: use a dedup store before anybody resubmits dead letters.",
	}
	e[boundary.EffectCommitUnknown] = boundary.Entry{
		Declared: boundary.Twice, Sources: []string{"PS-F-09"},
		Note: "A retry applies it again, an ack without one may lose it: commit a marker with the effect.",
	}
	e[boundary.EffectRewind] = boundary.Entry{
		Declared: boundary.NotApplicable, Sources: []string{"PS-F-09"},
		Note: "A receiver can't go back: StartFrom is ErrUnsupported.",
	}
	return transactions(boundary.Guarded(e, false, "PS-F-09"))
}
