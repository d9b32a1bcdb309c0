// Package postgres keeps the markers and positions of package dedup in PostgreSQL,
// from version 13 on, beside the effects:
//
//	store, err := postgres.New(pool, postgres.Options{}) // a *pgxpool.Pool
//	err = store.Migrate(ctx)
//	err = store.Verify(ctx)
//	inbox := dedup.New[pgx.Tx](store, "billing", dedup.Options{})
//
// [NewSQL] does the same for a *sql.DB, whose transactions are *sql.Tx.
// [OncePipelined] applies batches of effects that can be queued, without waiting for
// each answer: where the way to the database is long, nothing else is as fast.
//
// # Claims
//
// A claim inserts the marker, and takes an advisory lock that stands for it, which
// ends with the transaction. Who doesn't get the lock doesn't wait, as he would for
// the unique index (PG-F-01): the message is InFlight. The locks are 64 bits of the marker, in
// the space of pg_try_advisory_xact_lock(bigint); one that somebody else holds there
// by chance makes a message come again later.
//
// Transactions are READ COMMITTED, for at higher levels a copy is an error instead
// of a Duplicate (PG-F-02), and have timeouts of their own, which [Options] names.
//
// # How long markers are kept
//
// Markers without a time are in one table, and [Store.Maintain] deletes in small
// chunks what is older than the window. Markers of keys with a time are in
// partitions of a day each, by that time, and Maintain drops them as a whole. Their
// uniqueness doesn't suffer, for the time is part of the key (PG-F-08): it would from
// partitions by the time at which a message came (PG-F-06, PG-F-07).
//
// # What a failover can lose
//
// A standby that takes over without the last commits of its primary takes markers and
// effects back together: no effect happens twice by that, but the messages were acked,
// and their effects are lost. Replicate synchronously (synchronous_standby_names), so
// that a commit is answered, and seen by others, when a standby has it. A commit whose
// wait for it is cut, by [Options].CommitTimeout or with its connection, stands at the
// primary and is seen there: a copy is a Duplicate then although no standby may have it
// yet. So make CommitTimeout longer than a standby may take.
//
// # The outbox
//
// [dedup.NewOutbox] and [dedup.NewRelay] take a store too. A relay's turn holds an
// advisory lock for each lane that it sends, in the space of
// pg_try_advisory_xact_lock(int, int), by a transaction that lasts as long as the
// Publish; so each of its workers needs a connection, and [Listener] one more. Rows
// are sent in the order of their numbers within a lane, never "all after the last one
// seen", which loses what commits late, nor by SKIP LOCKED, which turns the rows of a
// key between two relays. Call [Store.VerifyOutbox] at the start of who writes; the
// relay does so by itself.
package postgres
