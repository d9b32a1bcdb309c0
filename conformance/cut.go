package conformance

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance/report"
)

// Cut cuts connections of the probe, whichever way the target has. With fault points
// it arms a fault: the next such request on the probe's entity is not passed on, and
// the connection that carries it is closed. Without them all connections to the broker
// are closed at once, by [Instance].Cut, and the injection has struck when Cut returns.
// What a probe does to be struck it does while the injection has no hits.
func (b *Bench) Cut(op FaultOp) (Injection, error) {
	if b.Instance.Inject != nil {
		return b.Inject(Fault{Op: op, Kind: CutRequest, Times: 1})
	}
	n, err := b.Instance.Cut()
	if err != nil {
		return nil, fmt.Errorf("cut the connections: %w", err)
	}
	if n == 0 {
		return nil, errors.New("cut the connections: there was none to cut")
	}
	b.history.Add(report.Fault, "fault", "", "%s to the broker cut", amount(n, "connection", "connections"))
	return wereCut(n), nil
}

// wereCut is the injection of so many connections that were cut already.
type wereCut int

func (n wereCut) Hits() int  { return int(n) }
func (wereCut) Applied() int { return 0 }
func (wereCut) Remove()      {}

func (wereCut) WaitApplied(context.Context) error {
	return errors.New("connections were cut, and nobody saw what the broker had applied")
}

// lostInSilence is lostRequest where no request can be struck: what is sent into a
// silent network, whose connections are cut before it carries again, never arrives.
func (b *Bench) lostInSilence(ctx context.Context, p broker.Publisher, m broker.Message) (r broker.Receipt, err error) {
	carry, err := b.silence(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, carry()) }()
	try, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	if r = b.Publish(try, p, m)[0]; r.Verdict.OK() {
		return r, fmt.Errorf("a request that was lost in a silent network is answered: %s", r.Verdict)
	}
	_, err = b.Cut(OnPublish)
	return r, err
}

// noFaults is why a probe that strikes requests can't run on an instance without
// Inject.
func noFaults(i *Instance) string {
	if i.Cut != nil {
		return "faults strike whole connections here, not single requests, and nobody would see that the broker applied one whose answer is lost"
	}
	return "the target has no fault points"
}
