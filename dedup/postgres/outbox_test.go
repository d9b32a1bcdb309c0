package postgres_test

import (
	"database/sql"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/postgres"
)

// ahead is a clock that can be moved.
type ahead struct{ by atomic.Int64 }

func (a *ahead) now() time.Time          { return time.Now().Add(time.Duration(a.by.Load())) }
func (a *ahead) forward(d time.Duration) { a.by.Add(int64(d)) }

func TestOutbox(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 16)
	t.Run("pgx", func(t *testing.T) {
		storetest.RunOutbox(t, func(t *testing.T) storetest.OutboxSetup[pgx.Tx] {
			var clock ahead
			s, _ := open(t, p, postgres.Options{Now: clock.now})
			return storetest.OutboxSetup[pgx.Tx]{Driver: s, Forward: clock.forward}
		})
	})
	t.Run("database/sql", func(t *testing.T) {
		db := openSQL(t, p)
		storetest.RunOutbox(t, func(t *testing.T) storetest.OutboxSetup[*sql.Tx] {
			var clock ahead
			s, err := postgres.NewSQL(db, postgres.Options{Schema: newSchema(t, p), Now: clock.now})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			return storetest.OutboxSetup[*sql.Tx]{Driver: s, Forward: clock.forward}
		})
	})
}

// TestOutboxModes: the ways in which pgx sends statements behind a pooler, which
// prepare nothing.
func TestOutboxModes(t *testing.T) {
	t.Parallel()
	db := start(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			p := connect(t, db, 4)
			p.config.DefaultQueryExecMode = mode
			storetest.RunOutbox(t, func(t *testing.T) storetest.OutboxSetup[pgx.Tx] {
				var clock ahead
				s, _ := open(t, p, postgres.Options{Now: clock.now})
				return storetest.OutboxSetup[pgx.Tx]{Driver: s, Forward: clock.forward}
			}, "Sent", "Order", "Parked", "Held", "RelayGone")
		})
	}
}

// TestOutboxClock: without a clock of its own the store takes the database's.
func TestOutboxClock(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 4)
	storetest.RunOutbox(t, func(t *testing.T) storetest.OutboxSetup[pgx.Tx] {
		s, _ := open(t, p, postgres.Options{})
		return storetest.OutboxSetup[pgx.Tx]{Driver: s, Forward: func(time.Duration) {}}
	}, "Sent", "Order", "Parked", "Stop", "Wake")
}

// TestRelayFrozen: a relay that is frozen in the middle of its turn loses the lanes,
// and can't settle any more when it goes on (xavierjohn/Trellis#644).
func TestRelayFrozen(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 4)
	s, _ := open(t, p, postgres.Options{})
	out := dedup.NewOutbox(s, "orders", dedup.OutboxOptions{})
	if err := out.InTx(t.Context(), func(tx pgx.Tx) error {
		return out.AddTx(t.Context(), tx, broker.Message{ID: "a", Key: "k"}, broker.Message{ID: "b", Key: "k"})
	}); err != nil {
		t.Fatal(err)
	}
	entered, leave := make(chan struct{}), make(chan struct{})
	ended := make(chan error)
	go func() {
		_, err := s.RelayOutbox(t.Context(), dedup.OutboxTurn{Topic: "orders", Lanes: dedup.OutboxLanes, Rows: 10, Bytes: 1000, Bound: 10 * time.Millisecond, Guard: true}, func(rows []dedup.OutboxRow) []dedup.OutboxFate {
			close(entered)
			<-leave
			return slices.Repeat([]dedup.OutboxFate{{State: dedup.OutboxParked, Reason: "frozen"}}, len(rows))
		})
		ended <- err
	}()
	<-entered
	to := &memory{}
	r := dedup.NewRelay(s, "orders", to, dedup.RelayOptions{})
	for deadline := time.Now().Add(30 * time.Second); len(to.ids) < 2; <-time.After(20 * time.Millisecond) {
		if _, err := r.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("the lanes are never free")
		}
	}
	close(leave)
	if err := <-ended; !errors.Is(err, dedup.ErrLost) {
		t.Errorf("the frozen relay settles: %v", err)
	}
	if b, err := s.OutboxBacklog(t.Context(), "orders"); err != nil || b != (dedup.OutboxBacklog{}) || !slices.Equal(to.ids, []string{"a", "b"}) {
		t.Errorf("%v, %v, sent %v", b, err, to.ids)
	}
}

func TestLongOutbox(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 2)
	s, schema := open(t, p, postgres.Options{})
	storetest.LongOutbox(t, s, func(t *testing.T, n int) {
		c, err := p.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { p.free <- c }()
		if _, err := c.Exec(t.Context(), `INSERT INTO `+pgx.Identifier{schema, "onceline_outbox"}.Sanitize()+` (topic, lane, hash, at, id, key, meta, body)
			SELECT 'long', i % 64, 1 + i % 200, 1, i::text::bytea, 'k', '', 'b' FROM generate_series(1, $1::int) i`, n); err != nil {
			t.Fatal(err)
		}
	})
}
