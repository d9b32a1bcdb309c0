package targets_test

import (
	"context"
	"errors"
	"testing"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
)

// hooked is the reference implementation with an instance that can more.
func hooked(hook func(*conformance.Instance), options ...memory.Option) conformance.Target {
	t := targets.Memory(options...)
	start := t.Start
	t.Start = func(ctx context.Context) (*conformance.Instance, error) {
		i, err := start(ctx)
		if err == nil {
			hook(i)
		}
		return i, err
	}
	t.Private = t.Start
	return t
}

// observed is what the claim's probe answers.
func observed(t *testing.T, target conformance.Target, claim boundary.Claim) (answer, reason string) {
	t.Helper()
	r, err := conformance.Run(t.Context(), target, conformance.Options{Claims: []string{string(claim)}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	f := r.Targets[0].Findings[0]
	return f.Observed, f.Reason
}

// TestReplicatedIsTold: a broker whose node is killed and stays away shows who else
// has the messages.
func TestReplicatedIsTold(t *testing.T) {
	t.Parallel()
	crash := func(i *conformance.Instance) {
		i.KillLeader = func(ctx context.Context, _ broker.Entity) (func(context.Context) error, error) {
			return func(context.Context) error { return nil }, i.Kill(ctx)
		}
	}
	// Nobody can reach a single node before it is back.
	alone := func(i *conformance.Instance) {
		down := false
		open := i.Open
		i.Open = func(ctx context.Context) (broker.Conn, error) {
			if down {
				return nil, broker.Errorf(broker.ErrUnavailable, nil, "the node is down")
			}
			return open(ctx)
		}
		i.KillLeader = func(ctx context.Context, _ broker.Entity) (func(context.Context) error, error) {
			down = true
			return func(context.Context) error { down = false; return nil }, i.Kill(ctx)
		}
	}
	for _, c := range []struct {
		name    string
		hook    func(*conformance.Instance)
		options []memory.Option
		want    boundary.Answer
		slow    bool
	}{
		{"another node has them", crash, nil, boundary.Kept, false},
		{"one node alone has them", alone, nil, boundary.OneNode, true},
		{"nobody has them", crash, []memory.Option{memory.WithoutDurableAck()}, boundary.Lost, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.slow && testing.Short() {
				t.Skip("waits for an election that doesn't come")
			}
			t.Parallel()
			if got, why := observed(t, hooked(c.hook, c.options...), boundary.PublishAckReplicated); got != string(c.want) {
				t.Errorf("%q: %s; want %q", got, why, c.want)
			}
		})
	}
}

// TestStrangerIsTold: what a stranger is answered is told apart, and a broker that
// lets nobody in shows nothing.
func TestStrangerIsTold(t *testing.T) {
	t.Parallel()
	refused := func(kind error) func(context.Context) (broker.Conn, error) {
		return func(context.Context) (broker.Conn, error) {
			return nil, broker.Errorf(kind, errors.New("whatever it is"), "connect")
		}
	}
	for _, c := range []struct {
		name             string
		friend, stranger func(context.Context) (broker.Conn, error) // nil: let in
		want             boundary.Answer
	}{
		{"refused", nil, refused(broker.ErrUnauthorized), boundary.Refused},
		{"taken for a broker that is down", nil, refused(broker.ErrUnavailable), boundary.RefusedOtherwise},
		{"let in", nil, nil, boundary.LetIn},
		{"the friend is refused too", refused(broker.ErrUnauthorized), refused(broker.ErrUnauthorized), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			target := hooked(func(i *conformance.Instance) {
				either := func(open func(context.Context) (broker.Conn, error)) *conformance.Instance {
					if open == nil {
						open = i.Open
					}
					return &conformance.Instance{Open: open}
				}
				i.Guarded = func(context.Context) (friend, stranger *conformance.Instance, err error) {
					return either(c.friend), either(c.stranger), nil
				}
			})
			if got, why := observed(t, target, boundary.PublishUnauthorized); got != string(c.want) {
				t.Errorf("%q: %s; want %q", got, why, c.want)
			}
		})
	}
}
