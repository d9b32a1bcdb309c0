package rabbitmq

import "github.com/onceline/onceline/broker/boundary"

// effects adds to e where the guarantees of queues end on hop 3, beside what each kind
// says of it.
func effects(e map[boundary.Claim]boundary.Entry) map[boundary.Claim]boundary.Entry {
	checkpoints(e)
	e[boundary.EffectCrashBefore] = boundary.Entry{
		Declared: boundary.Once, Sources: []string{"RMQ-F-12"},
		Note: "It comes again as the connection ends.",
	}
	e[boundary.EffectCrashAfterAck] = boundary.Entry{
		Declared: boundary.Once, Sources: []string{"RMQ-F-09", "RMQ-F-41"},
		Note: "If the ack arrived, of which there is no answer: one that is lost brings the message again.",
	}
	e[boundary.EffectReplay] = boundary.Entry{
		Declared: boundary.Twice, Sources: []string{"RMQ-F-01"},
		Note: "Another copy is another message to the broker, and keeps the ID: use a dedup store before anybody resubmits dead letters.",
	}
	e[boundary.EffectCommitUnknown] = boundary.Entry{
		Declared: boundary.Twice, Sources: []string{"RMQ-F-12"},
		Note: "A retry applies it again, an ack without one may lose it: commit a marker with the effect.",
	}
	e[boundary.EffectRewind] = boundary.Entry{
		Declared: boundary.NotApplicable, Sources: []string{"RMQ-F-12"},
		Note: "A receiver can't go back: StartFrom is ErrUnsupported.",
	}
	return transactions(boundary.Guarded(e, false, "RMQ-F-12"))
}

// streamEffects is the same of streams, where one consumer at a time has all.
func streamEffects(e map[boundary.Claim]boundary.Entry) map[boundary.Claim]boundary.Entry {
	streamCheckpoints(e)
	e[boundary.EffectCrashBefore] = boundary.Entry{
		Declared: boundary.Once, Sources: []string{"RMS-F-10"},
		Note: "The next consumer goes on from the stored offset.",
	}
	e[boundary.EffectCrashAfterAck] = boundary.Entry{
		Declared: boundary.Once, Sources: []string{"RMS-F-10"},
		Note: "If the ack was Confirmed. One that is Pending waits for those before it, and comes again if they do.",
	}
	e[boundary.EffectReplay] = boundary.Entry{
		Declared: boundary.Twice, Sources: []string{"RMS-F-10"},
		Note: "Another copy has another offset: a stored position takes it for a new message, an inbox doesn't.",
	}
	e[boundary.EffectCommitUnknown] = boundary.Entry{
		Declared: boundary.Twice, Sources: []string{"RMS-F-10"},
		Note: "A retry applies it again, an ack without one may lose it: commit a marker with the effect.",
	}
	e[boundary.EffectRewind] = boundary.Entry{
		Declared: boundary.Twice, Sources: []string{"RMS-F-10"},
		Note: "To every effect it is one more copy: use a stored position or an inbox before anybody resets offsets.",
	}
	return streamTransactions(boundary.Guarded(e, true, "RMS-F-10"))
}
