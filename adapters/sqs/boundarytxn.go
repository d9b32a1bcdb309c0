package sqs

import "github.com/onceline/onceline/broker/boundary"

// transactions adds to e that there are none.
func transactions(e map[boundary.Claim]boundary.Entry) map[boundary.Claim]boundary.Entry {
	return boundary.WithoutTransactions(e, "SQS has no transactions: a batch is a number of requests, each with its own answer. Write outputs to an outbox in the transaction of your database, and guard effects by an inbox.", "SQS-F-41")
}
