package memory

import "github.com/onceline/onceline/broker/boundary"

// effects adds what is promised on hop 3.
func effects(e map[boundary.Claim]boundary.Entry) map[boundary.Claim]boundary.Entry {
	checkpoints(e)
	e[boundary.EffectCrashBefore] = boundary.Entry{
		Declared: boundary.Once,
		Note:     "It comes again when its lease has ended.",
	}
	e[boundary.EffectCrashAfterAck] = boundary.Entry{
		Declared: boundary.Once,
		Note:     "The ack is answered, and final.",
	}
	e[boundary.EffectReplay] = boundary.Entry{
		Declared: boundary.Twice,
		Note:     "Another copy is another message to the broker, and keeps the ID: use a dedup store before anybody resubmits dead letters.",
	}
	e[boundary.EffectCommitUnknown] = boundary.Entry{
		Declared: boundary.Twice,
		Note:     "A retry applies it again, an ack without one may lose it: commit a marker with the effect.",
	}
	e[boundary.EffectRewind] = boundary.Entry{
		Declared: boundary.NotApplicable,
		Note:     "A receiver can't go back: StartFrom is ErrUnsupported.",
	}
	return transactions(boundary.Guarded(e, false))
}
