package ownadapter_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/examples/ownadapter"
)

func TestMain(m *testing.M) { conformance.RunIfWorker(); os.Exit(m.Run()) }

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	conformance.Test(t, conformance.Target{
		Name: "spool", Broker: "spool", Boundary: ownadapter.Boundary(), Lease: time.Second, WishLease: true,
		Start: func(context.Context) (*conformance.Instance, error) {
			return &conformance.Instance{URL: "spool://" + dir, Entity: entity,
				Open: func(context.Context) (broker.Conn, error) { return ownadapter.Open(dir) }}, nil
		},
	})
}

// A topic of this broker is its own subscription.
func entity(name string) broker.Entity { return broker.Entity{Topic: name, Subscription: name} }
