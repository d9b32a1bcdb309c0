package kafka

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// groupTransactions adds what transactions give with a consumer group.
func groupTransactions(e map[boundary.Claim]boundary.Entry) map[boundary.Claim]boundary.Entry {
	e = transactions(e)
	e[boundary.TxnScope] = boundary.Entry{
		Declared: boundary.PublishesAndSettles, Documented: boundary.PublishesAndSettles, Sources: []string{"KAF-F-14", "KAF-F-17"},
		Note: "Records and positions of one cluster. An ack in it is a position: what lies before it in its partition has to be settled too.",
	}
	e[boundary.TxnRewind] = boundary.Entry{
		Declared: boundary.AtOnce, Documented: boundary.Never, Sources: []string{"KAF-F-16"},
		Note: "The adapter hands them out again. Kafka's own clients go on behind them unless the application seeks back.",
	}
	e[boundary.TxnReadUncommitted] = boundary.Entry{
		Declared: boundary.CommittedAlone, Documented: boundary.CommittedAlone, Sources: []string{"KAF-F-15"},
		Note: "The adapter asks for committed records, unless isolation=uncommitted is wished for. Kafka's own default is not to, so look at the other consumers of the topic. A committed reader waits behind what is open.",
	}
	return e
}

// shareTransactions is the same with a share group.
func shareTransactions(e map[boundary.Claim]boundary.Entry) map[boundary.Claim]boundary.Entry {
	e = transactions(e)
	e[boundary.TxnScope] = boundary.Entry{
		Declared: boundary.Publishes, Documented: boundary.Publishes, Sources: []string{"KAF-F-14", "KAF-F-52"},
		Note: "Records of one cluster. A share group's acks can't be in it: use a consumer group where inputs and outputs have to go together.",
	}
	e[boundary.TxnRewind] = boundary.Entry{
		Declared: boundary.NotApplicable, Sources: []string{"KAF-F-52"},
		Note: "Acks can't be in a transaction: nack the inputs of one that was aborted.",
	}
	e[boundary.TxnReadUncommitted] = boundary.Entry{
		Declared: boundary.CommittedAlone, Sources: []string{"KAF-F-400"},
		Note: "Ensure asks it of the group (share.isolation.level). A group that others made delivers records of open and aborted transactions, which is Kafka's default.",
	}
	return e
}

func transactions(e map[boundary.Claim]boundary.Entry) map[boundary.Claim]boundary.Entry {
	maps.Copy(e, map[boundary.Claim]boundary.Entry{
		boundary.TxnAtomic: {
			Declared: boundary.AllOrNone, Documented: boundary.AllOrNone, Sources: []string{"KAF-F-14", "KAF-F-18", "KAF-F-19", "KAF-F-28"},
			Note: "Under transaction.version 1 a request that was held up on its way can land in a later transaction.",
		},
		boundary.TxnZombie: {
			Declared: boundary.Refused, Documented: boundary.Refused, Sources: []string{"KAF-F-27", "KAF-F-28"},
			Note: "If both use the same transactional ID. One that is made anew at each start fences nobody, and leaves what it had open to the timeout.",
		},
		boundary.TxnTimeout: {
			Declared: boundary.AbortedTold, Documented: boundary.AbortedTold, Sources: []string{"KAF-F-08", "KAF-F-27"},
			Note: "The broker looks for what is too old at intervals, of ten seconds by default, so it can be later by that. Until then committed readers of the partitions wait. At most transaction.max.timeout.ms, 15 minutes by default.",
		},
		boundary.TxnCommitUnknown: {
			Declared: boundary.Resolved, Sources: []string{"KAF-F-301"},
			Note: "By the repeat of the request under the same producer ID and epoch, and behind another holder by the marker in the log. franz-go by itself offers an abort, which says nothing (KAF-F-23).",
		},
		boundary.TxnExternalEffect: {
			Declared: boundary.Twice, Documented: boundary.Twice, Sources: []string{"KAF-F-14"},
			Note: "Once for each attempt. Derive it from the outputs by a consumer with an inbox, or write it with an outbox in a transaction of the database.",
		},
	})
	return e
}
