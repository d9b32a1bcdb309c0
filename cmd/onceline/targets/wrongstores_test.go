package targets_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
)

// wrongWays are the ways in which stores are written that don't have effects once.
var wrongWays = map[string]func(ctx context.Context, w *wrongStore, m broker.Message, step func(conformance.Step)) error{
	"no marker": func(ctx context.Context, w *wrongStore, m broker.Message, step func(conformance.Step)) error {
		step(conformance.Claimed)
		step(conformance.Begun)
		return w.effect(ctx, m, step)
	},
	"the marker first": func(ctx context.Context, w *wrongStore, m broker.Message, step func(conformance.Step)) error {
		if fresh, err := w.mark(ctx, m.ID); err != nil || !fresh {
			return err
		}
		step(conformance.Claimed)
		step(conformance.Begun)
		return w.effect(ctx, m, step)
	},
	"the marker after the effect": func(ctx context.Context, w *wrongStore, m broker.Message, step func(conformance.Step)) error {
		var n int
		if err := w.db.QueryRowContext(ctx, "SELECT count(*) FROM marker WHERE id = ?", m.ID).Scan(&n); err != nil || n > 0 {
			return err
		}
		step(conformance.Claimed)
		step(conformance.Begun)
		if err := w.effect(ctx, m, step); err != nil {
			return err
		}
		_, err := w.mark(ctx, m.ID)
		return err
	},
	"a marker for each copy": func(ctx context.Context, w *wrongStore, m broker.Message, step func(conformance.Step)) error {
		if fresh, err := w.mark(ctx, m.ID+" "+m.Copy); err != nil || !fresh {
			return err
		}
		step(conformance.Claimed)
		step(conformance.Begun)
		return w.effect(ctx, m, step)
	},
	"a reservation for a day": func(ctx context.Context, w *wrongStore, m broker.Message, step func(conformance.Step)) error {
		if fresh, err := w.mark(ctx, m.ID); err != nil {
			return err
		} else if !fresh {
			return fmt.Errorf("%w: reserved", conformance.ErrAgain)
		}
		step(conformance.Claimed)
		step(conformance.Begun)
		return w.effect(ctx, m, step)
	},
}

// wrongStore is a store in SQLite that goes about it in one of the wrong ways.
type wrongStore struct {
	db   *sql.DB
	way  string
	lose atomic.Bool
}

func (w *wrongStore) Apply(ctx context.Context, m broker.Message, _ broker.Position, step func(conformance.Step)) error {
	return wrongWays[w.way](ctx, w, m, step)
}

func (w *wrongStore) effect(ctx context.Context, m broker.Message, step func(conformance.Step)) error {
	if _, err := w.db.ExecContext(ctx, "INSERT INTO effect (id) VALUES (?)", m.ID); err != nil {
		return err
	}
	if w.lose.Swap(false) {
		return fmt.Errorf("%w: no answer", conformance.ErrAgain)
	}
	step(conformance.Applied)
	return nil
}

func (w *wrongStore) mark(ctx context.Context, id string) (fresh bool, err error) {
	result, err := w.db.ExecContext(ctx, "INSERT INTO marker (id) VALUES (?) ON CONFLICT DO NOTHING", id)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

func (w *wrongStore) LoseAnswer() func() bool {
	w.lose.Store(true)
	return func() bool { return !w.lose.Load() }
}

func (w *wrongStore) Effects(ctx context.Context, id string) (n int, err error) {
	return n, w.db.QueryRowContext(ctx, "SELECT count(*) FROM effect WHERE id = ?", id).Scan(&n)
}

func (w *wrongStore) Close() error { return w.db.Close() }

func openWrong(ctx context.Context, dir, way string) (conformance.Guard, error) {
	path := (&url.URL{Path: filepath.Join(dir, "wrong.db")}).EscapedPath()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS effect (id TEXT NOT NULL); CREATE TABLE IF NOT EXISTS marker (id TEXT PRIMARY KEY)")
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &wrongStore{db: db, way: way}, nil
}

// wrongStores are all wrong ways as stores of each kind.
func wrongStores() []conformance.Store {
	var stores []conformance.Store
	for _, kind := range conformance.StoreKinds() {
		for way := range wrongWays {
			stores = append(stores, conformance.Store{Kind: kind, Name: way,
				Make: func(context.Context) (string, func() error, error) {
					dir, err := os.MkdirTemp("", "onceline-wrong-")
					return dir, func() error { return os.RemoveAll(dir) }, err
				},
				Open: func(ctx context.Context, dir string) (conformance.Guard, error) { return openWrong(ctx, dir, way) }})
		}
	}
	return append(append(stores, asAnother()...), wrongPipelines()...)
}

// asAnother is the inbox under the names of other kinds, which are to have effects
// twice.
func asAnother() []conformance.Store {
	var stores []conformance.Store
	for _, s := range targets.Stores() {
		if s.Kind == conformance.Inbox && s.Name == "sqlite" {
			for _, kind := range []string{conformance.Position, conformance.Lease} {
				other := s
				other.Kind, other.Name = kind, "an inbox"
				stores = append(stores, other)
			}
		}
	}
	return stores
}

// wrongByStore says by which claims a wrong store of a kind is seen, and what they
// answer.
var wrongByStore = []struct {
	kind, name string
	want       map[boundary.Claim]boundary.Answer
}{
	{conformance.Inbox, "no marker", map[boundary.Claim]boundary.Answer{
		boundary.EffectInboxCrashAfterEffect: boundary.Twice, boundary.EffectInboxZombie: boundary.Twice,
		boundary.EffectInboxReplay: boundary.Twice, boundary.EffectInboxCommitUnknown: boundary.Twice}},
	{conformance.Inbox, "the marker first", map[boundary.Claim]boundary.Answer{boundary.EffectInboxCrashBefore: boundary.Lost}},
	{conformance.Inbox, "the marker after the effect", map[boundary.Claim]boundary.Answer{
		boundary.EffectInboxCrashAfterEffect: boundary.Twice, boundary.EffectInboxZombie: boundary.Twice, boundary.EffectInboxCommitUnknown: boundary.Twice}},
	{conformance.Inbox, "a marker for each copy", map[boundary.Claim]boundary.Answer{boundary.EffectInboxReplay: boundary.Twice}},
	{conformance.Position, "the marker first", map[boundary.Claim]boundary.Answer{boundary.EffectPositionCrashBefore: boundary.Lost}},
	{conformance.Position, "the marker after the effect", map[boundary.Claim]boundary.Answer{
		boundary.EffectPositionCrashAfterEffect: boundary.Twice, boundary.EffectPositionZombie: boundary.Twice, boundary.EffectPositionCommitUnknown: boundary.Twice}},
	{conformance.Position, "an inbox", map[boundary.Claim]boundary.Answer{boundary.EffectPositionReplay: boundary.Once}},
	{conformance.Lease, "no marker", map[boundary.Claim]boundary.Answer{
		boundary.EffectLeaseReplay: boundary.Twice, boundary.EffectLeaseCommitUnknown: boundary.Twice}},
	{conformance.Lease, "a reservation for a day", map[boundary.Claim]boundary.Answer{boundary.EffectLeaseCrashBefore: boundary.Lost}},
	{conformance.Lease, "an inbox", map[boundary.Claim]boundary.Answer{
		boundary.EffectLeaseCrashAfterEffect: boundary.Once, boundary.EffectLeaseZombie: boundary.Once}},
	{conformance.LeaseFenced, "no marker", map[boundary.Claim]boundary.Answer{boundary.EffectLeaseFencedZombie: boundary.Twice}},
	{conformance.Call, "no marker", map[boundary.Claim]boundary.Answer{
		boundary.EffectCallCrashBefore: boundary.Once, boundary.EffectCallCrashAfterEffect: boundary.Twice, boundary.EffectCallZombie: boundary.Twice,
		boundary.EffectCallReplay: boundary.Twice, boundary.EffectCallCommitUnknown: boundary.Twice}},
	{conformance.Inbox, "no marker", map[boundary.Claim]boundary.Answer{boundary.EffectInboxRewind: boundary.Twice}},
	{conformance.Position, "no marker", map[boundary.Claim]boundary.Answer{boundary.EffectPositionRewind: boundary.Twice}},
	{conformance.CallKeyed, "the marker first", map[boundary.Claim]boundary.Answer{boundary.EffectCallKeyedCrashBefore: boundary.Lost}},
}

// TestEachWrongStoreIsSeen: a store that is written in one of the usual wrong ways has
// effects never or more than once, and the claims say so. The reference implementation
// has positions, so that a store by position can be asked on it as well.
func TestEachWrongStoreIsSeen(t *testing.T) {
	t.Parallel()
	byStore := map[[2]string]conformance.Store{}
	for _, s := range wrongStores() {
		byStore[[2]string{s.Kind, s.Name}] = s
	}
	for _, c := range wrongByStore {
		var claims []string
		for claim := range c.want {
			claims = append(claims, string(claim))
		}
		t.Run(c.kind+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			target := targets.Memory()
			target.Exclusive = true
			if c.want[boundary.EffectInboxRewind]+c.want[boundary.EffectPositionRewind] != "" {
				target = targets.RabbitMQStream() // it can go back
			}
			store, known := byStore[[2]string{c.kind, c.name}]
			if !known {
				t.Fatal("there is no such store")
			}
			target.Stores = []conformance.Store{store}
			r, err := conformance.Run(t.Context(), target, conformance.Options{Claims: claims, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Targets[0].Findings) != len(c.want) {
				t.Errorf("%d findings", len(r.Targets[0].Findings))
			}
			for _, f := range r.Targets[0].Findings {
				if want := c.want[boundary.Claim(f.Claim)]; f.Observed != string(want) || !f.Verdict.Fails() {
					t.Errorf("%s: %s, %q: %s; want %q", f.Claim, f.Verdict, f.Observed, f.Reason, want)
				}
			}
		})
	}
}
