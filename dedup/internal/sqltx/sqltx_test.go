package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/internal/bubbletest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDatabase, errRefused, errEffect = errors.New("database"), errors.New("refused"), errors.New("effect")

// fake is a database whose transactions end as it says, and which notes what it is
// asked.
type fake struct {
	connect, begin, commit, rollback error
	hang                             bool // a commit hangs until its context ends
	asked                            []string
}

func (f *fake) Connect(context.Context) (driver.Conn, error) { return &fakeConn{f: f}, f.connect }
func (f *fake) Driver() driver.Driver                        { return nil }

type fakeConn struct {
	f   *fake
	ctx context.Context
}

func (c *fakeConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c *fakeConn) Close() error                        { return nil }
func (c *fakeConn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (c *fakeConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	c.f.asked, c.ctx = append(c.f.asked, "begin"), ctx
	return c, c.f.begin
}
func (c *fakeConn) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	c.f.asked = append(c.f.asked, query)
	return driver.ResultNoRows, nil
}
func (c *fakeConn) Commit() error {
	c.f.asked = append(c.f.asked, "commit")
	if c.f.hang {
		<-c.ctx.Done()
		return c.ctx.Err()
	}
	return c.f.commit
}
func (c *fakeConn) Rollback() error {
	c.f.asked = append(c.f.asked, "rollback")
	return c.f.rollback
}

// TestTransact: what is lost, what is refused and what nobody knows is told apart,
// and a transaction never stays open.
func TestTransact(t *testing.T) {
	for _, c := range []struct {
		name   string
		fake   fake
		begun  error
		effect error
		want   []error
		not    error
		asked  []string
	}{
		{name: "committed", asked: []string{"begin", "commit"}},
		{name: "no connection", fake: fake{connect: errDatabase}, want: []error{dedup.ErrLost, errDatabase}},
		{name: "no begin", fake: fake{begin: errDatabase}, want: []error{dedup.ErrLost, errDatabase}, asked: []string{"begin"}},
		{name: "no settings", begun: errDatabase, want: []error{dedup.ErrLost, errDatabase}, asked: []string{"begin", "rollback"}},
		{name: "effect failed", effect: errEffect, want: []error{errEffect}, not: dedup.ErrLost, asked: []string{"begin", "rollback"}},
		{name: "effect failed, connection dead", fake: fake{rollback: errDatabase}, effect: errEffect, want: []error{errEffect, dedup.ErrLost}, asked: []string{"begin", "rollback"}},
		{name: "commit refused", fake: fake{commit: errRefused}, want: []error{errRefused}, not: dedup.ErrCommitUnknown, asked: []string{"begin", "commit", "ROLLBACK"}},
		{name: "commit without an answer", fake: fake{commit: errDatabase}, want: []error{errDatabase, dedup.ErrCommitUnknown}, not: dedup.ErrLost, asked: []string{"begin", "commit", "ROLLBACK"}},
		{name: "commit hangs", fake: fake{hang: true}, want: []error{context.Canceled, dedup.ErrCommitUnknown}, asked: []string{"begin", "commit", "ROLLBACK"}},
	} {
		// In a bubble a commit has begun before its time is over.
		t.Run(c.name, func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				db := sql.OpenDB(&c.fake)
				defer db.Close()
				e := Engine{DB: db, CommitTimeout: time.Hour, Refused: func(err error) bool { return errors.Is(err, errRefused) }, Dead: func(error) bool { return true },
					Begun: func(context.Context, *sql.Tx) error { return c.begun }}
				if c.fake.hang {
					e.CommitTimeout = time.Millisecond
				}
				err := e.Transact(t.Context(), func(*sql.Tx) error { return c.effect })
				if len(c.want) == 0 && err != nil {
					t.Error(err)
				}
				for _, want := range c.want {
					if !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
				}
				if c.not != nil && errors.Is(err, c.not) {
					t.Errorf("%v is %v", err, c.not)
				}
				// After an answer that was lost, whether the connection still takes a
				// ROLLBACK is no matter.
				if !slices.Equal(c.fake.asked, c.asked) && !(c.fake.hang && len(c.fake.asked) == 2) {
					t.Errorf("asked %q, want %q", c.fake.asked, c.asked)
				}
				if n := db.Stats().InUse; n != 0 {
					t.Errorf("%d connections are in use", n)
				}
			})
		})
	}
}

// TestCancel: a context that ends during the effect rolls back; one that ends during
// the commit doesn't cut it.
func TestCancel(t *testing.T) {
	f := &fake{}
	db := sql.OpenDB(f)
	defer db.Close()
	e := Engine{DB: db, CommitTimeout: time.Hour, Refused: func(error) bool { return false }, Dead: func(error) bool { return true }}
	ctx, cancel := context.WithCancel(t.Context())
	if err := e.Transact(ctx, func(*sql.Tx) error { cancel(); return nil }); !errors.Is(err, context.Canceled) || errors.Is(err, dedup.ErrCommitUnknown) {
		t.Error(err)
	}
	if err := e.Transact(ctx, func(*sql.Tx) error { t.Error("it ran"); return nil }); !errors.Is(err, dedup.ErrLost) {
		t.Error(err)
	}
	if !slices.Equal(f.asked, []string{"begin", "rollback"}) {
		t.Errorf("asked %q", f.asked)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is swallowed")
			}
		}()
		_ = e.Transact(t.Context(), func(*sql.Tx) error { panic(errEffect) })
	}()
	if n := db.Stats().InUse; n != 0 || f.asked[len(f.asked)-1] != "rollback" {
		t.Errorf("after a panic %d connections are in use, asked %q", n, f.asked)
	}
}
