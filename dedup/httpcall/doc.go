// Package httpcall makes HTTP requests, and answers those that come in, once for each
// ID, by the records of [dedup.Calls].
//
// Outgoing: a [Transport] sends the idempotency key, keeps the answer, and gives it to
// who asks for the same again:
//
//	calls, err := dedup.NewCalls(store, "psp", dedup.CallOptions{Idempotent: 24 * time.Hour})
//	client := &http.Client{Transport: &httpcall.Transport{Calls: calls}}
//	req, err := http.NewRequestWithContext(httpcall.WithID(ctx, "order-8812:paid:v1"), "POST", url, body)
//	resp, err := client.Do(req)
//
// Incoming: a [Receiver] around a handler takes the ID from a header, Idempotency-Key
// or that of a sender of webhooks, runs the handler once, and replays its answer.
//
// Redirects have another URL and so are another request: let the client's
// CheckRedirect return http.ErrUseLastResponse.
package httpcall
