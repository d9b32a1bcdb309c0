package servicebus

import "github.com/onceline/onceline/broker/boundary"

// transactions adds to e that there are none.
func transactions(e map[boundary.Claim]boundary.Entry) map[boundary.Claim]boundary.Entry {
	return boundary.WithoutTransactions(e, "The service has transactions of sends and settles, and its SDK for Go can't use them. Write outputs to an outbox in the transaction of your database, and guard effects by an inbox.", "SB-F-300")
}
