package otel_test

import (
	"testing"

	"github.com/onceline/onceline/broker"
)

// A transaction takes deliveries of an instrumented receiver, and the instrumented
// connection has what its inner one has.
func TestTransactionThroughTelemetry(t *testing.T) {
	r := newRig(t)
	x, err := broker.OpenTransactor(t.Context(), r.conn, "x")
	must(t, err)
	_, err = r.pub.Publish(t.Context(), broker.Message{ID: "a"})
	must(t, err)
	ds, err := r.rcv.Receive(t.Context(), 1)
	must(t, err)
	tx, err := x.Begin(t.Context())
	must(t, err)
	s := []broker.Settlement{{Delivery: &ds[0]}}
	must(t, tx.Settle(t.Context(), s))
	if s[0].Outcome.State != broker.Pending {
		t.Fatalf("%+v", s[0].Outcome)
	}
	token, err := tx.Prepare(t.Context())
	must(t, err)
	if o, err := broker.RecoverTransaction(t.Context(), r.conn, token, true); o.State != broker.Confirmed {
		t.Fatal(o, err)
	}
	if o, err := tx.Commit(t.Context()); o.State != broker.Confirmed {
		t.Fatal(o, err)
	}
	if o, err := ds[0].Ack(t.Context()); o.State != broker.Confirmed {
		t.Fatal(o, err)
	}
}
