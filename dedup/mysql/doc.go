// Package mysql keeps the markers, positions, calls and outboxes of package dedup in MySQL, from
// version 8.0 on, or MariaDB, from 10.6 on, beside the effects, by database/sql and
// github.com/go-sql-driver/mysql:
//
//	db, err := sql.Open("mysql", "billing@tcp(localhost)/billing?readTimeout=40s&writeTimeout=40s")
//	store, err := mysql.New(ctx, db, mysql.Options{})
//	err = store.Migrate(ctx)
//	err = store.Verify(ctx)
//	inbox := dedup.New[*sql.Tx](store, "billing", dedup.Options{})
//
// Its tests run on MariaDB. On MySQL 8 it is untested: what it uses is documented
// there too.
//
// The driver ends a commit that has no answer by readTimeout alone: without one in the
// address a server that is frozen holds a consumer up for as long as it is.
//
// # Claims
//
// A claim first locks a row for each marker, by its hash, in a table of 65,536 rows
// made for that, and skips those that are locked (MY-F-01): the message is InFlight,
// without the wait that inserting the marker of an open transaction is (MY-F-02). Two
// messages may share a row, and then one of them comes again later: with 1,000 in open
// transactions about every 65th. The locks end with the transaction.
//
// Transactions are READ COMMITTED and have timeouts of their own, which [Options]
// names. They are variables of the session, and stay with its connection.
//
// # What a crash or a failover can lose
//
// [Store.Verify] refuses settings by which a crash of the server or its machine takes back
// what was committed. A server without a binary log, which is MariaDB's default, shows a
// commit before it is durable (MY-F-390), so there a claim that finds a copy is followed by
// a small commit of its own, and a relay's turn marks its rows in one before it sends them.
//
// A replica that takes over without the last commits of its primary takes markers and
// effects back together: no effect happens twice by that, but the messages were acked, and
// their effects are lost. Semi-synchronous replication that waits before the commit
// (rpl_semi_sync_master_wait_point = AFTER_SYNC), or a cluster, keeps them.
//
// # The outbox
//
// [dedup.NewOutbox] and [dedup.NewRelay] take a store too. A relay's turn locks a row for
// each lane that it sends, which other relays skip, by a transaction that lasts as long as
// the Publish; so each of its workers needs a connection. The lanes of a relay that is
// killed are free when the server notices, and those of one that is frozen when it has
// been idle for too long. Nothing tells relays in other processes of new messages: they
// find them at their next poll. Call [Store.VerifyOutbox] at the start of who writes; the
// relay does so by itself. [dedup.NewTransactionalRelay] takes a store as well.
//
// # Deadlocks
//
// After a deadlock the server has rolled the whole transaction back, and takes the
// statements that follow for ones without a transaction (MY-F-03). The store's transactions
// are without autocommit meanwhile, so that an effect which goes on after such an error
// leaves nothing of that either; the store notices, and applies the message again. In a
// transaction of its own the caller has to see to that.
package mysql
