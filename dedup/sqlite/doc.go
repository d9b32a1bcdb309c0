// Package sqlite keeps the markers and positions of package dedup in a SQLite
// database, in this process and without C: the store that needs nothing installed.
// The effects are writes to the same database, by the transaction that they are
// given:
//
//	store, err := sqlite.Open(ctx, "orders.db", sqlite.Options{})
//	inbox := dedup.New(store, "billing", dedup.Options{})
//
// SQLite has one writer at a time. Transactions wait for each other here, within
// BusyTimeout, so a copy of a message that is being applied is found as a
// Duplicate after the wait, and never is InFlight. What costs is the sync to disk at
// each commit: batches share it.
//
// A commit returns after it is on disk: journal in WAL mode, synchronous = FULL,
// which [Store.Verify] holds a database to that somebody else has opened.
//
// [dedup.NewOutbox] and [dedup.NewRelay] take a store too. A relay leases its lanes and
// is in no transaction while it sends, so that it keeps no writer waiting; those of
// one that was killed are free after about twice its PublishTimeout.
package sqlite
