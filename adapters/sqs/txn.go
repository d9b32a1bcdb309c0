package sqs

// NoTransactions is driver.NoTransactions'.
func (c *conn) NoTransactions() string {
	return "SQS has no transactions: a batch is a number of requests, each with its own answer (SQS-F-41); use package dedup's outbox and inbox"
}
