package pubsub

// NoTransactions is driver.NoTransactions'.
func (c *conn) NoTransactions() string {
	return "Pub/Sub has no transactions: its API publishes and acknowledges, and can't tie the two (PS-F-300); use package dedup's outbox and inbox"
}
