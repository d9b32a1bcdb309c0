package targets

import (
	"context"
	"fmt"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// Memory is the reference implementation, with a clock that the suite moves.
// Options switch promises of it off, which is how the suite is tested.
func Memory(options ...memory.Option) conformance.Target {
	start := func(context.Context) (*conformance.Instance, error) {
		clock := memory.NewClock()
		b := memory.New(append([]memory.Option{memory.WithClock(clock)}, options...)...)
		return &conformance.Instance{
			Open:    func(context.Context) (broker.Conn, error) { return b.Conn(), nil },
			Inject:  func(f conformance.Fault) (conformance.Injection, error) { return injectMemory(b, f) },
			Restart: func(context.Context) error { b.Restart(true); return nil },
			Kill:    func(context.Context) error { b.Kill(); return nil },
			Purge:   func(_ context.Context, e broker.Entity) error { return b.Purge(e.Topic) },
			Advance: clock.Advance,
			Now:     clock.Now,
			Close:   func(context.Context) error { b.Close(); return nil },

			FullSubscription: subscriberWithoutRoom("memory", nil),
		}, nil
	}
	return conformance.Target{
		Name: "memory", Broker: "memory", Kind: report.KindEmulator,
		Boundary: memory.Boundary(),
		Start:    start, Private: start,
		Lease: 30 * time.Second, WishLease: true, Window: 2 * time.Minute,
		Patience: 200 * time.Millisecond,
		Stores:   Stores(),
	}
}

// injectMemory translates the suite's fault into the reference
// implementation's, which has no connection to cut beside it.
func injectMemory(b *memory.Broker, f conformance.Fault) (conformance.Injection, error) {
	ops := map[conformance.FaultOp]memory.Op{
		conformance.OnPublish: memory.Publish,
		conformance.OnReceive: memory.Receive,
		conformance.OnSettle:  memory.Settle,
		conformance.OnCommit:  memory.Commit,
	}
	kinds := map[conformance.FaultKind]memory.Kind{
		conformance.LoseRequest:  memory.LoseRequest,
		conformance.LoseResponse: memory.LoseResponse,
		conformance.DelayRequest: memory.Delay,
		conformance.CutRequest:   memory.Cut,
	}
	op, known := ops[f.Op]
	kind, also := kinds[f.Kind]
	var answer error
	if f.Kind == conformance.PushBack {
		kind, also, answer = memory.Error, true, broker.ErrBusy
	}
	if !known || !also {
		return nil, fmt.Errorf("%s: %w", f, broker.ErrUnsupported)
	}
	i := b.Inject(memory.Fault{Op: op, Kind: kind, Err: answer, Match: f.Match, Times: f.Times, Delay: f.Delay})
	return i, i.Err()
}
