package crashes

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// disturb does to a consumer, which is at the point, what the cell is about.
func (r *run) disturb(ctx context.Context, n int, e event, ids []string) error {
	var err error
	switch r.Disturbance {
	case Kill:
		if err = r.killed(ctx, e.from); err == nil {
			r.main, err = r.start(ctx)
		}
		return err
	case Freeze:
		return r.freeze(ctx, n, e, ids)
	case CutStore:
		e.from.tell(command{Seq: e.Seq, Do: cutOff})
		return nil
	case CutBroker:
		if r.link.emulator.Disconnect() == 0 {
			return errors.New("no connection to the broker was cut")
		}
	case Restart:
		if err := r.db.restart(ctx); err != nil {
			return err
		}
	}
	e.from.tell(command{Seq: e.Seq, Do: goOn})
	return nil
}

// freeze stops a consumer until another has taken over, and lets it go on then.
func (r *run) freeze(ctx context.Context, n int, e event, ids []string) error {
	zombie := e.from
	delete(r.told, zombie.name+" "+e.ID) // that it failed before is no news
	zombie.freeze()
	if err := zombie.frozen(ctx); err != nil {
		return err
	}
	r.frozen = true
	other, err := r.launch(true)
	if err != nil {
		return err
	}
	// In each second round the other one stops behind the effect, to be killed there.
	killed := n%2 == 1
	if killed {
		other.tell(command{Trigger: &trigger{ID: e.ID, Point: AfterCommit, Round: n}})
	}
	busy := 0
	r.other, r.held = other, false
	defer func() { r.other = nil }()
	for !r.held && !r.isOver(ids) && busy < 3 {
		o, err := r.next(ctx)
		if err != nil {
			return fmt.Errorf("taking over: %w; not handled: %s", err, strings.Join(r.missing(ids), ", "))
		}
		if o.from != other {
			continue // what it had said before
		}
		if o.Event == handled && o.Parked || r.locks(o) {
			busy++
		}
		if o.Event == settled {
			if err := r.look(ctx); err != nil {
				return err
			}
		}
	}
	zombie.thaw()
	zombie.tell(command{Seq: e.Seq, Do: goOn})
	for r.Point != AfterAck && !r.told[zombie.name+" "+e.ID] {
		if _, err := r.next(ctx); err != nil {
			return fmt.Errorf("the one that was frozen goes on: %w", err)
		}
	}
	if err := r.retire(ctx, zombie); err != nil {
		return err
	}
	r.frozen = false
	r.main = other
	if r.held {
		if err := r.killed(ctx, other); err != nil {
			return err
		}
	} else if r.store.kind == positionKind { // the next round wants batches
		if err := r.retire(ctx, other); err != nil {
			return err
		}
	} else {
		return nil
	}
	r.main, err = r.start(ctx)
	return err
}

// locks reports whether a consumer was kept out by one that is frozen in a transaction
// of SQLite, which has one writer.
func (r *run) locks(e event) bool {
	return r.store.Server == "" && (e.Event == handled && !e.OK || e.Event == note) && strings.Contains(e.Note, "SQLITE_BUSY")
}
