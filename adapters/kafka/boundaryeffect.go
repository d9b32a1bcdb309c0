package kafka

import "github.com/onceline/onceline/broker/boundary"

// groupEffects adds to e where the guarantees with a consumer group end on hop 3,
// beside what is the same for each way to receive.
func groupEffects(e map[boundary.Claim]boundary.Entry) map[boundary.Claim]boundary.Entry {
	groupCheckpoints(e)
	e[boundary.EffectCrashBefore] = boundary.Entry{
		Declared: boundary.Once, Sources: []string{"KAF-F-34"},
		Note: "The next owner of the partition goes on from the committed offset, which is below it.",
	}
	e[boundary.EffectCrashAfterAck] = boundary.Entry{
		Declared: boundary.Once, Sources: []string{"KAF-F-30"},
		Note: "If the ack was Confirmed. One that is Pending waits for those before it, and comes again if they do.",
	}
	e[boundary.EffectReplay] = boundary.Entry{
		Declared: boundary.Twice, Sources: []string{"KAF-F-01"},
		Note: "Another copy has another offset: a stored position takes it for a new message, an inbox doesn't. To reset the group's offsets brings the same records, which both know.",
	}
	e[boundary.EffectCommitUnknown] = boundary.Entry{
		Declared: boundary.Twice, Sources: []string{"KAF-F-14"},
		Note: "A retry applies it again, an ack without one may lose it: commit a marker with the effect.",
	}
	e[boundary.EffectRewind] = boundary.Entry{
		Declared: boundary.Twice, Sources: []string{"KAF-F-34"},
		Note: "To every effect it is one more copy: use a stored position or an inbox before anybody resets offsets.",
	}
	return groupTransactions(boundary.Guarded(e, true, "KAF-F-34"))
}

// shareEffects is the same with a share group.
func shareEffects(e map[boundary.Claim]boundary.Entry) map[boundary.Claim]boundary.Entry {
	shareCheckpoints(e)
	e[boundary.EffectCrashBefore] = boundary.Entry{
		Declared: boundary.Once, Sources: []string{"KAF-F-50"},
		Note: "It comes again as the connection ends, or else when its lease does. At the delivery limit the broker drops it.",
	}
	e[boundary.EffectCrashAfterAck] = boundary.Entry{
		Declared: boundary.Once, Sources: []string{"KAF-F-45"},
		Note: "The ack is answered, and final.",
	}
	e[boundary.EffectReplay] = boundary.Entry{
		Declared: boundary.Twice, Sources: []string{"KAF-F-01"},
		Note: "Another copy is another message to the broker, and keeps the ID: use a dedup store before anybody resubmits dead letters.",
	}
	e[boundary.EffectCommitUnknown] = boundary.Entry{
		Declared: boundary.Twice, Sources: []string{"KAF-F-14"},
		Note: "A retry applies it again, an ack without one may lose it: commit a marker with the effect.",
	}
	e[boundary.EffectRewind] = boundary.Entry{
		Declared: boundary.NotApplicable, Sources: []string{"KAF-F-50"},
		Note: "A receiver can't go back: StartFrom is ErrUnsupported.",
	}
	return shareTransactions(boundary.Guarded(e, false, "KAF-F-50"))
}
