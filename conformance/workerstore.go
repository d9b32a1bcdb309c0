package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance/report"
)

// workerStores are what a worker can open, as RunIfWorker was told.
var workerStores []Store

// storeSpec tells a worker of a store.
type storeSpec struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Address string `json:"address"`
}

// guards are the stores of a worker. One message at a time is applied by all of them,
// side by side.
type guards struct {
	specs []storeSpec
	open  []Guard
	let   chan struct{} // closed when those that are held at a step may go on
	ended []chan error
}

func openGuards(ctx context.Context, specs []storeSpec) (*guards, error) {
	g := &guards{specs: specs}
	for _, s := range specs {
		found := false
		for _, known := range workerStores {
			if known.Kind != s.Kind || known.Name != s.Name {
				continue
			}
			guard, err := known.Open(ctx, s.Address)
			if err != nil {
				return nil, fmt.Errorf("open %s on %s: %w", s.Kind, s.Name, err)
			}
			g.open, found = append(g.open, guard), true
		}
		if !found {
			return nil, fmt.Errorf("this program's RunIfWorker wasn't told of the store %s on %s", s.Kind, s.Name)
		}
	}
	return g, nil
}

// do carries out what a probe tells the worker about its stores.
func (g *guards) do(ctx context.Context, command string, d *broker.Delivery) (workerEvent, error) {
	verb, rest, _ := strings.Cut(command, " ")
	switch verb {
	case "deliver":
		*d = broker.Delivery{}
		var m handed
		if err := json.Unmarshal([]byte(rest), &m); err != nil {
			return workerEvent{}, err
		}
		d.ID, d.Copy, d.Position = m.ID, m.Copy, m.Position
		return workerEvent{Event: "delivery", ID: d.ID}, nil
	case "reach":
		return workerEvent{Event: "reached", ID: d.ID}, g.reach(ctx, d, Step(rest))
	case "finish":
		return workerEvent{Event: "finished", ID: d.ID, Said: g.finish()}, nil
	}
	return workerEvent{}, fmt.Errorf("unknown command %q", command)
}

// handed is a delivery as it is told to a worker that doesn't receive by itself.
type handed struct {
	ID       string          `json:"id"`
	Copy     string          `json:"copy,omitempty"`
	Position broker.Position `json:"position"`
}

// reach begins to apply the effect of d by each store, and returns when all are at the
// step, where they are held.
func (g *guards) reach(ctx context.Context, d *broker.Delivery, at Step) error {
	let := make(chan struct{})
	g.let, g.ended = let, nil
	m, position := d.Message, d.Position
	for i, guard := range g.open {
		arrived, ended := make(chan struct{}), make(chan error, 1)
		arrive := sync.OnceFunc(func() { close(arrived) })
		g.ended = append(g.ended, ended)
		go func() {
			ended <- begin(ctx, arrived, func() error {
				return guard.Apply(ctx, m, position, func(s Step) {
					if s == at {
						arrive()
						<-let
					}
				})
			})
		}()
		select {
		case <-arrived:
		case err := <-ended:
			return fmt.Errorf("%s on %s: ended before it was %s: %w", g.specs[i].Kind, g.specs[i].Name, at, orEnded(err))
		case <-time.After(20 * time.Second):
			return fmt.Errorf("%s on %s: never %s", g.specs[i].Kind, g.specs[i].Name, at)
		}
	}
	return nil
}

// begin applies until that has arrived where it is to be held: before, a message that
// has to come again does, for a database may be slow to see that who had it is gone.
func begin(ctx context.Context, arrived <-chan struct{}, apply func() error) error {
	for deadline := time.Now().Add(inHand); ; {
		err := apply()
		select {
		case <-arrived:
			return err
		default:
		}
		if !errors.Is(err, ErrAgain) || time.Now().After(deadline) || !sleep(ctx, 20*time.Millisecond) {
			return err
		}
	}
}

func orEnded(err error) error {
	if err == nil {
		err = errors.New("it says that the message may be acked")
	}
	return err
}

// finish lets those that are held go on, and says how each ended.
func (g *guards) finish() []string {
	close(g.let)
	said := make([]string, len(g.ended))
	for i, ended := range g.ended {
		said[i] = verdict(<-ended)
	}
	return said
}

// verdict puts what Guard.Apply returned into words.
func verdict(err error) string {
	if err == nil {
		return "may be acked"
	}
	return err.Error()
}

func (w *worker) reach(ctx context.Context, step Step) error {
	if len(w.bench.stores) == 0 {
		return nil
	}
	e, err := w.tell(ctx, "reach "+string(step), "reached")
	if err == nil {
		for _, s := range w.bench.stores {
			w.bench.history.Add(report.Store, s.Kind, e.ID, "%s, asked by %s, which is held at the step %q", s.Name, w.name, step)
		}
	}
	return err
}

func (w *worker) finish(ctx context.Context) error {
	if len(w.bench.stores) == 0 {
		return nil
	}
	e, err := w.tell(ctx, "finish", "finished")
	if err == nil && len(e.Said) == len(w.bench.stores) {
		for i, s := range w.bench.stores {
			w.bench.history.Add(report.Store, s.Kind, e.ID, "%s: %s goes on: %s", s.Name, w.name, e.Said[i])
		}
	}
	return err
}

func (m *modelled) reach(ctx context.Context, step Step) error {
	if m.store == nil {
		return nil
	}
	d, err := json.Marshal(handed{m.d.ID, m.d.Copy, m.d.Position})
	if err != nil {
		return err
	}
	if _, err := m.store.tell(ctx, "deliver "+string(d), "delivery"); err != nil {
		return err
	}
	return m.store.reach(ctx, step)
}

func (m *modelled) finish(ctx context.Context) error {
	if m.store == nil {
		return nil
	}
	return m.store.finish(ctx)
}

// stopped notes what is done to the consumer, and does it to the process that has its
// stores.
func (m *modelled) stopped(how string, process func(*worker)) {
	m.bench.history.Add(report.Consumer, how, "", "%s, modelled", m.name)
	if m.store != nil {
		process(m.store)
	}
}
