package boundary

import "slices"

// The claims of transactions: what broker.Transactor gives on a broker. TxnScope names
// what one covers; the others ask how far it can be trusted.
const (
	TxnScope           Claim = "txn.scope"
	TxnAtomic          Claim = "txn.atomic"
	TxnZombie          Claim = "txn.zombie"
	TxnTimeout         Claim = "txn.timeout"
	TxnCommitUnknown   Claim = "txn.commit-unknown"
	TxnReadUncommitted Claim = "txn.read-uncommitted"
	TxnExternalEffect  Claim = "txn.external-effect"
	TxnRewind          Claim = "txn.rewind"
)

// The answers of the claims of transactions.
const (
	PublishesToOne       Answer = "publishes-to-one" // topic or stream
	Publishes            Answer = "publishes"
	PublishesAndSettles  Answer = "publishes-and-settles"
	AbortedTold          Answer = "aborted-and-told"
	Resolved             Answer = "resolved"
	UncommittedDelivered Answer = "uncommitted-delivered"
	CommittedAlone       Answer = "committed-alone"
)

// TxnClaims returns the claims of transactions, in the order of the catalogue.
func TxnClaims() []Claim {
	return []Claim{TxnScope, TxnAtomic, TxnZombie, TxnTimeout, TxnCommitUnknown, TxnReadUncommitted, TxnExternalEffect, TxnRewind}
}

// WithoutTransactions adds to entries what an adapter declares whose broker, or whose
// SDK, has no transactions. why says so, and what to do instead.
func WithoutTransactions(entries map[Claim]Entry, why string, sources ...string) map[Claim]Entry {
	for _, claim := range TxnClaims() {
		e := Entry{Declared: NotApplicable, Sources: slices.Clone(sources), Note: why}
		if claim == TxnScope {
			e.Declared = Unsupported
		}
		entries[claim] = e
	}
	return entries
}
