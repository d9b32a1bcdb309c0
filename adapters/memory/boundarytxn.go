package memory

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// transactions adds what is promised of them.
func transactions(e map[boundary.Claim]boundary.Entry) map[boundary.Claim]boundary.Entry {
	maps.Copy(e, map[boundary.Claim]boundary.Entry{
		boundary.TxnScope:           {Declared: boundary.PublishesAndSettles, Note: "Of one broker, over all its topics and subscriptions."},
		boundary.TxnAtomic:          {Declared: boundary.AllOrNone, Note: "One step under the broker's lock. What was published gets its place, and is known by its ID, at the commit."},
		boundary.TxnZombie:          {Declared: boundary.Refused, Note: "Opening an ID ends its earlier holder."},
		boundary.TxnTimeout:         {Declared: boundary.Unsupported, Note: "A transaction has no time of its own; the leases of its inputs run on, and one that has ended undoes it."},
		boundary.TxnCommitUnknown:   {Declared: boundary.Resolved, Note: "The broker remembers how the last thousand transactions of an ID ended."},
		boundary.TxnReadUncommitted: {Declared: boundary.CommittedAlone, Note: "What is published is nowhere before the commit."},
		boundary.TxnExternalEffect:  {Declared: boundary.Twice, Note: "Once for each attempt. Guard it by an inbox, or derive it from the outputs."},
		boundary.TxnRewind:          {Declared: boundary.Behind, Note: "Behind what waits, and each costs an attempt. With Ordered they keep their places."},
	})
	return e
}
