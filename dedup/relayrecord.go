package dedup

import "context"

// RelayRecords is what a store implements, beside [OutboxStore], for relays that send in
// transactions of a broker ([NewTransactionalRelay]): for each topic, which process
// relays it, and the transaction that it has prepared and whose rows are still in the
// outbox. All methods are safe for concurrent use.
type RelayRecords interface {
	OutboxStore
	// VerifyRelays reports what in the store would lose records, as an error that is
	// [ErrVerify].
	VerifyRelays(ctx context.Context) error
	// TakeRelay makes the caller the owner of a topic's relay and returns its Term, one
	// higher than any before, with what the owner before has left. Where was isn't 0 it
	// does so only if that is still the last term: ok is false otherwise.
	TakeRelay(ctx context.Context, topic string, was int64) (row RelayRow, ok bool, err error)
	// PrepareRelay notes a prepared transaction, in place of what was noted before. ok is
	// false, and nothing noted, if the term isn't the last one any more.
	PrepareRelay(ctx context.Context, topic string, term int64, token []byte, seqs []int64) (ok bool, err error)
	// SettleRelay forgets what is noted and does with its rows what fate says, in one
	// transaction: OutboxSent removes them, OutboxHeld stops them, OutboxLeft leaves them
	// to be sent. ok is false, and nothing done, if the term isn't the last one any more.
	SettleRelay(ctx context.Context, topic string, term int64, fate OutboxFate) (ok bool, err error)
}

// RelayRow is what a store keeps of a topic's relay.
type RelayRow struct {
	// Term counts the owners that it has had.
	Term int64
	// Token is of [broker.Transaction].Prepare, nil if no transaction is noted, and
	// Seqs are those of its rows.
	Token []byte
	Seqs  []int64
}
