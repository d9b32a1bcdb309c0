package pubsub

import "github.com/onceline/onceline/broker/boundary"

// transactions adds to e that there are none.
func transactions(e map[boundary.Claim]boundary.Entry) map[boundary.Claim]boundary.Entry {
	return boundary.WithoutTransactions(e, "Pub/Sub's API publishes and acknowledges, and can't tie the two. Write outputs to an outbox in the transaction of your database, and guard effects by an inbox.", "PS-F-300")
}
