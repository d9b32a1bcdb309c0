package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/mysql"
)

// ahead is a clock that can be moved.
type ahead struct{ by atomic.Int64 }

func (a *ahead) now() time.Time          { return time.Now().Add(time.Duration(a.by.Load())) }
func (a *ahead) forward(d time.Duration) { a.by.Add(int64(d)) }

// emptyOutbox is a store in db, whose tables are made, with nothing in its outbox.
func emptyOutbox(t *testing.T, db *sql.DB, o mysql.Options) *mysql.Store {
	t.Helper()
	exec(t, db, "DELETE FROM onceline_outbox", "DELETE FROM onceline_outbox_lane")
	s, err := mysql.New(t.Context(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOutbox(t *testing.T) {
	server := start(t)
	first := connect(t, server, "")
	db := newDatabase(t, server, first)
	if err := open(t, db, mysql.Options{}).VerifyOutbox(t.Context()); err != nil {
		t.Fatal(err)
	}
	storetest.RunOutbox(t, func(t *testing.T) storetest.OutboxSetup[*sql.Tx] {
		var clock ahead
		return storetest.OutboxSetup[*sql.Tx]{Driver: emptyOutbox(t, db, mysql.Options{Now: clock.now}), Forward: clock.forward}
	})
	// Without a clock of its own the store takes the database's, whatever its zone.
	t.Run("Clock", func(t *testing.T) {
		var name string
		if err := db.QueryRow("SELECT database()").Scan(&name); err != nil {
			t.Fatal(err)
		}
		zoned := connect(t, server, name, "time_zone=%27%2B09%3A00%27")
		storetest.RunOutbox(t, func(t *testing.T) storetest.OutboxSetup[*sql.Tx] {
			return storetest.OutboxSetup[*sql.Tx]{Driver: emptyOutbox(t, zoned, mysql.Options{}), Forward: func(time.Duration) {}}
		}, "Sent", "Parked", "Stop")
		s := emptyOutbox(t, zoned, mysql.Options{})
		addTo(t, s, "orders", broker.Message{ID: "a"})
		if b, err := s.OutboxBacklog(t.Context(), "orders"); err != nil || b.Oldest > time.Minute {
			t.Errorf("%v, %v", b, err)
		}
	})
	t.Run("Bytes", func(t *testing.T) { outboxBytes(t, emptyOutbox(t, db, mysql.Options{})) })
	t.Run("OneLane", func(t *testing.T) { outboxOneLane(t, emptyOutbox(t, db, mysql.Options{})) })
	t.Run("LanesGone", func(t *testing.T) { outboxLanesGone(t, emptyOutbox(t, db, mysql.Options{}), db) })
	t.Run("Frozen", func(t *testing.T) { outboxFrozen(t, emptyOutbox(t, db, mysql.Options{})) })
	t.Run("Verify", func(t *testing.T) { outboxVerify(t, newDatabase(t, server, first)) })
}

func addTo(t *testing.T, s *mysql.Store, topic string, msgs ...broker.Message) {
	t.Helper()
	out := dedup.NewOutbox[*sql.Tx](s, topic, dedup.OutboxOptions{})
	if err := out.InTx(t.Context(), func(tx *sql.Tx) error { return out.AddTx(t.Context(), tx, msgs...) }); err != nil {
		t.Fatal(err)
	}
}

// all takes a turn of all lanes.
func all(topic string, rows int) dedup.OutboxTurn {
	return dedup.OutboxTurn{Topic: topic, Lanes: dedup.OutboxLanes, Rows: rows, Bytes: 1 << 20, Bound: 10 * time.Second, Guard: true}
}

// outboxBytes: topics, IDs, keys and bodies come back byte by byte, and nothing in them
// is SQL.
func outboxBytes(t *testing.T, s *mysql.Store) {
	var every [256]byte
	for i := range every {
		every[i] = byte(i)
	}
	topic := `a'; DROP TABLE onceline_outbox; -- \`
	m := broker.Message{ID: `'"\` + "\xff\x01é", Key: `\'` + "\x80", Body: every[:], Headers: []broker.Header{{Key: "h'", Value: string(every[:])}}}
	addTo(t, s, topic, m)
	addTo(t, s, strings.ToUpper(topic), broker.Message{ID: "other"})
	n, err := s.RelayOutbox(t.Context(), all(topic, 10), func(rows []dedup.OutboxRow) []dedup.OutboxFate {
		if len(rows) != 1 || rows[0].ID != m.ID || rows[0].Key != m.Key || !slices.Equal(rows[0].Body, m.Body) {
			t.Errorf("%+v", rows)
		}
		return []dedup.OutboxFate{{State: dedup.OutboxParked, Reason: m.ID}}
	})
	if n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	stopped, err := s.StoppedOutbox(t.Context(), topic, 0, 10)
	if err != nil || len(stopped) != 1 || stopped[0].ID != m.ID || stopped[0].Key != m.Key || stopped[0].Reason != m.ID {
		t.Errorf("%+v, %v", stopped, err)
	}
	long := strings.Repeat("x", 256)
	for _, err := range []error{
		s.Transact(t.Context(), func(tx *sql.Tx) error { return s.AddOutbox(t.Context(), tx, long, nil) }),
		func() error { _, err := s.RelayOutbox(t.Context(), all(long, 1), nil); return err }(),
	} {
		if !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("a topic of 256 bytes: %v", err)
		}
	}
}

// outboxOneLane: where nearly all messages are of one key, a turn is as full of them as
// it may be, and the rows of other keys aren't behind them.
func outboxOneLane(t *testing.T, s *mysql.Store) {
	var msgs []broker.Message
	for i := range 60 {
		msgs = append(msgs, broker.Message{ID: fmt.Sprintf("hot-%02d", i), Key: "hot"})
	}
	for i := range 10 {
		msgs = append(msgs, broker.Message{ID: fmt.Sprint("cold-", i), Key: fmt.Sprint(i)})
	}
	addTo(t, s, "orders", msgs...)
	for _, want := range []int{40, 30, 0} {
		last := int64(0)
		n, err := s.RelayOutbox(t.Context(), all("orders", 40), func(rows []dedup.OutboxRow) []dedup.OutboxFate {
			for _, r := range rows {
				if r.Seq <= last {
					t.Errorf("%s is out of order", r.ID)
				}
				last = r.Seq
			}
			return slices.Repeat([]dedup.OutboxFate{{State: dedup.OutboxSent}}, len(rows))
		})
		if n != want || err != nil {
			t.Errorf("%d rows, want %d: %v", n, want, err)
		}
	}
}

// outboxLanesGone: messages don't wait for ever where somebody has emptied the table of the
// lanes.
func outboxLanesGone(t *testing.T, s *mysql.Store, db *sql.DB) {
	send := func() int {
		t.Helper()
		n, err := s.RelayOutbox(t.Context(), all("orders", 10), func(rows []dedup.OutboxRow) []dedup.OutboxFate {
			return slices.Repeat([]dedup.OutboxFate{{State: dedup.OutboxSent}}, len(rows))
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	addTo(t, s, "orders", broker.Message{ID: "a"})
	if n := send(); n != 1 {
		t.Errorf("%d sent", n)
	}
	exec(t, db, "DELETE FROM onceline_outbox_lane")
	addTo(t, s, "orders", broker.Message{ID: "b"})
	if n := send() + send(); n != 1 {
		t.Errorf("%d sent", n)
	}
}

// outboxFrozen: a relay that is frozen in the middle of its turn loses the lanes, and
// can't settle any more when it goes on (xavierjohn/Trellis#644).
func outboxFrozen(t *testing.T, s *mysql.Store) {
	addTo(t, s, "orders", broker.Message{ID: "a", Key: "k"}, broker.Message{ID: "b", Key: "k"})
	turn := all("orders", 10)
	turn.Bound = 10 * time.Millisecond
	entered, leave := make(chan struct{}), make(chan struct{})
	ended := make(chan error)
	go func() {
		_, err := s.RelayOutbox(t.Context(), turn, func(rows []dedup.OutboxRow) []dedup.OutboxFate {
			close(entered)
			<-leave
			return slices.Repeat([]dedup.OutboxFate{{State: dedup.OutboxParked, Reason: "frozen"}}, len(rows))
		})
		ended <- err
	}()
	<-entered
	var sent []string
	for deadline := time.Now().Add(30 * time.Second); len(sent) < 2; <-time.After(50 * time.Millisecond) {
		if _, err := s.RelayOutbox(t.Context(), all("orders", 10), func(rows []dedup.OutboxRow) []dedup.OutboxFate {
			for _, r := range rows {
				if r.Age <= 0 {
					t.Errorf("of %s it isn't known that it may have been sent before", r.ID)
				}
				sent = append(sent, r.ID)
			}
			return slices.Repeat([]dedup.OutboxFate{{State: dedup.OutboxSent}}, len(rows))
		}); err != nil {
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
	if b, err := s.OutboxBacklog(t.Context(), "orders"); err != nil || b != (dedup.OutboxBacklog{}) || !slices.Equal(sent, []string{"a", "b"}) {
		t.Errorf("%v, %v, sent %v", b, err, sent)
	}
}

// outboxVerify: tables that would lose messages or turn their order are refused.
func outboxVerify(t *testing.T, db *sql.DB) {
	s := open(t, db, mysql.Options{})
	for _, c := range []struct{ change, says, mend string }{
		{"ALTER TABLE onceline_outbox ENGINE = Aria", "onceline_outbox is kept by Aria", "ALTER TABLE onceline_outbox ENGINE = InnoDB"},
		{"ALTER TABLE onceline_outbox MODIFY seq BIGINT NOT NULL", "no AUTO_INCREMENT", "ALTER TABLE onceline_outbox MODIFY seq BIGINT NOT NULL AUTO_INCREMENT"},
		{"DROP TABLE onceline_outbox_lane", "onceline_outbox_lane is missing", ""},
	} {
		exec(t, db, c.change)
		if err := s.VerifyOutbox(t.Context()); !errors.Is(err, dedup.ErrVerify) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.change, err)
		}
		if c.mend != "" {
			exec(t, db, c.mend)
		}
	}
	if err := s.Migrate(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := s.VerifyOutbox(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLongOutbox(t *testing.T) {
	server := start(t)
	db := newDatabase(t, server, connect(t, server, ""))
	storetest.LongOutbox(t, open(t, db, mysql.Options{}), func(t *testing.T, n int) {
		query := []byte("INSERT INTO onceline_outbox (topic, lane, hash, at, added, id, ordering, meta, body) VALUES ")
		for i := range n {
			query = fmt.Appendf(query, "%s('long', %d, %d, 1, 1, %d, 'k', '', 'b')", []string{"", ", "}[min(i, 1)], i%64, 1+i%200, i)
		}
		exec(t, db, string(query))
	})
}
