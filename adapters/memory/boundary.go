package memory

import (
	"maps"

	"github.com/onceline/onceline/broker/boundary"
)

// Boundary is what this package promises with no option that breaks it. It has
// no vendor: nothing is documented elsewhere, and there are no sources.
func Boundary() boundary.Boundary {
	entries := map[boundary.Claim]boundary.Entry{
		boundary.PublishAckDurable:         {Declared: boundary.Kept, Note: "Kill and Restart(true) keep what was answered; it lives as long as the process."},
		boundary.PublishBatchPartial:       {Declared: boundary.Exact, Note: "Each message has its own verdict; publish the refused ones again, corrected, and none of the others."},
		boundary.PublishDedupScope:         {Declared: boundary.Topic, Note: "One ID is one message per topic, whatever its key and publisher."},
		boundary.PublishDedupWindow:        {Declared: boundary.AsConfigured, Note: "Entity.Window, two minutes by default, from the first sighting; a duplicate doesn't prolong it."},
		boundary.PublishDedupVerdict:       {Declared: boundary.DuplicateAt, Note: "A Duplicate has the position of the first."},
		boundary.PublishDedupBody:          {Declared: boundary.FirstKept, Note: "The body isn't compared: a second body under the same ID is dropped. Give a new message a new ID."},
		boundary.PublishDedupContent:       {Declared: boundary.BothStored, Note: "Only ID and Copy count."},
		boundary.PublishDedupLostResponse:  {Declared: boundary.Once, Note: "Retry with the same ID within the window."},
		boundary.PublishDedupNewProducer:   {Declared: boundary.Once, Note: "The ID must come from the business event, so that the new producer finds the same one."},
		boundary.PublishDedupBrokerRestart: {Declared: boundary.Once, Note: "Restart(false) is the broker that lost its disk, and it forgets."},
		boundary.PublishDedupAfterConsume:  {Declared: boundary.Once, Note: "An ack doesn't end the window."},
		boundary.PublishHalfOpen:           {Declared: boundary.SaysUnknown, Note: "There is no network; a lost answer is Unknown."},
		boundary.DeliverHalfOpen:           {Declared: boundary.Recovers, Note: "There is no network."},
		boundary.SettleHalfOpen:            {Declared: boundary.SaysUnknown, Note: "There is no network; a lost answer is Unknown."},
		boundary.DeliverSlow:               {Declared: boundary.Once, Note: "There is no network."},
		boundary.PublishDedupConcurrent:    {Declared: boundary.Once, Note: "One of the publishers gets Stored, the others Duplicate."},

		boundary.PublishDedupWindowAnchor:    {Declared: boundary.FirstSighting, Note: "Give up a retry, or make a new message of it, before the window is over."},
		boundary.PublishDedupLostRequest:     {Declared: boundary.Once, Note: "Retry with the same ID: what never arrived is not known."},
		boundary.PublishDedupTwoProducers:    {Declared: boundary.Once, Note: "The topic keeps the IDs, whoever publishes."},
		boundary.PublishDedupAfterPurge:      {Declared: boundary.Once, Note: "Broker.Purge leaves the IDs: wait for the end of the window, or set Copy, before the same messages are sent again."},
		boundary.PublishDedupWithinBatch:     {Declared: boundary.Once, Note: "The first gets Stored, the second Duplicate."},
		boundary.PublishDedupOtherKey:        {Declared: boundary.Once, Note: "The first key counts."},
		boundary.PublishDedupOtherTopic:      {Declared: boundary.Twice, Note: "Topics have no common memory: send a retry to the topic of the first attempt."},
		boundary.PublishDedupLookalikeHeader: {Declared: boundary.Kept, Note: "A header means nothing to the broker, whatever its name."},
		boundary.PublishIDLength:             {Declared: boundary.KeptAndDeduped, Note: "Up to broker.MaxID bytes; Publish refuses a longer one."},
		boundary.PublishIDCharset:            {Declared: boundary.KeptAndDeduped, Note: "Any bytes but NUL, compared byte by byte."},

		boundary.DeliverRedeliverExpiry:    {Declared: boundary.AfterLease, Note: "Extend a lease before it ends, or be ready for a second delivery elsewhere."},
		boundary.DeliverRedeliverCrash:     {Declared: boundary.AfterLease, Note: "A consumer that doesn't close its receiver keeps its messages until their lease ends."},
		boundary.DeliverRedeliverNackDelay: {Declared: boundary.Honoured, Note: "With Ordered the key waits along."},
		boundary.DeliverAttempt:            {Declared: boundary.Exact, Note: "A delivery given back by Close counts, for the consumer may have begun with it."},
		boundary.DeliverOrderKey:           {Declared: boundary.OverNack, Note: "With Ordered one message of a key is out at a time: use many keys for speed."},
		boundary.DeliverCancel:             {Declared: boundary.GivenBack, Note: "A cancelled Receive has taken nothing, and costs no attempt."},
		boundary.DeliverDeadLetter:         {Declared: boundary.Moved, Note: "With DeadLetter. Without it the message is parked: Stats.Parked counts it."},
		boundary.SettleAnswer:              {Declared: boundary.Confirmed, Note: "Each settle is answered."},
		boundary.SettleLostResponse:        {Declared: boundary.ConfirmedAgain, Note: "Settle again with the same action, within the lease and on the same connection."},
		boundary.SettleStale:               {Declared: boundary.Refused, Note: "The fence and the broker both refuse: the work must be idempotent, for another consumer does it too."},
		boundary.SettleFinal:               {Declared: boundary.Final, Note: "What was confirmed doesn't come back, nor after Kill."},
		boundary.VendorSettleStale:         {Declared: boundary.Refused, Note: "The broker knows each delivery by a lease number."},

		boundary.DeliverOrderRedelivery:    {Declared: boundary.OverNack, Note: "With Ordered; what is given back or expires holds its key up."},
		boundary.DeliverOrderHeadOfLine:    {Declared: boundary.KeyWaits, Note: "With Ordered, whoever receives: one message of a key is out at a time, and other keys go on."},
		boundary.DeliverDeadLetterAfterMax: {Declared: boundary.Moved, Note: "Each hand-over counts, whatever ends it."},
		boundary.DeliverDeadLetterReason:   {Declared: boundary.Kept, Note: "In the header onceline-dead-letter-reason."},
		boundary.DeliverDeadLetterAttempts: {Declared: boundary.Kept, Note: "In the header onceline-dead-letter-attempts; the rest is as it was."},
		boundary.DeliverClose:              {Declared: boundary.AtOnce, Note: "It costs each message an attempt."},
		boundary.DeliverPrefetch:           {Declared: boundary.Exact, Note: "A receiver takes what it is asked for and keeps no more."},
		boundary.DeliverBody:               {Declared: boundary.Exact, Note: "Body and headers are the consumer's own copy."},
		boundary.DeliverRedeliverReconnect: {Declared: boundary.AfterLease, Note: "The handles end with the connection; what they held comes again after its lease."},
		boundary.DeliverExactlyOnce:        {Declared: boundary.Once, Note: "As long as retries come within the window and no process fails. An effect needs a dedup store all the same."},

		boundary.EffectCrashAfterEffect: {Declared: boundary.Twice, Note: "No broker closes hop 3: commit the ID together with the effect, in a dedup store."},
		boundary.EffectZombie:           {Declared: boundary.Twice, Note: "The late ack is refused, but its effect was done: commit the ID together with the effect."},
	}
	maps.Copy(entries, leases())
	settleEntries(entries)
	maps.Copy(entries, refusals())
	return boundary.Boundary{Broker: "memory", Of: "the reference implementation in memory", Entries: effects(entries), Limits: limits()}
}
