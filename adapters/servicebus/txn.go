package servicebus

// NoTransactions is driver.NoTransactions'.
func (c *conn) NoTransactions() string {
	return "Service Bus has transactions of sends and settles, and its SDK for Go can't use them (SB-F-300); use package dedup's outbox and inbox"
}
