package postgres

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// Footprints of a marker, by whether its message carries a time: table and index,
// measured at a million markers with PostgreSQL 15.18 by onceline ratios.
const (
	MarkerBytes      dedup.Footprint = 93
	TimedMarkerBytes dedup.Footprint = 89
)

// Options says how a store works. The zero value is a good start. A negative timeout
// leaves the session's own.
type Options struct {
	// Schema is where the tables are. Empty means public.
	Schema string
	// Window is how long markers are kept. Zero means seven days. One that is made
	// longer takes its time to be so for messages that carry theirs: of days whose
	// markers were dropped they stay outside.
	Window time.Duration
	// Horizon, where it isn't zero, is how long copies may come. New refuses a
	// shorter window.
	Horizon dedup.Horizon
	// Ahead is for how long partitions are made in advance, so that messages find
	// theirs although nobody calls Maintain for a while, and although a producer's
	// clock is ahead. Zero means two days.
	Ahead time.Duration
	// LockTimeout bounds the wait for a lock. Zero means 5 s.
	LockTimeout time.Duration
	// StatementTimeout bounds each statement. Zero means 30 s.
	StatementTimeout time.Duration
	// IdleTimeout bounds the time between two statements, after which the server
	// ends the session of a consumer that is frozen or cut off, and its claims with
	// it. Zero means a minute.
	IdleTimeout time.Duration
	// CommitTimeout bounds the wait for the answer to a commit, which no context
	// cuts. Zero means 30 s.
	CommitTimeout time.Duration
	// DropTimeout is how long a partition that is dropped may wait for its lock,
	// and with it all who claim (PG-F-09); then it is tried again later. Zero means
	// 100 ms.
	DropTimeout time.Duration
	// Now is the clock of the window. Nil takes the database's.
	Now func() time.Time
}

func or(d *time.Duration, zero time.Duration) {
	if *d == 0 {
		*d = zero
	}
}

func (o Options) withDefaults() (Options, error) {
	if o.Schema == "" {
		o.Schema = "public"
	}
	or(&o.Window, 7*24*time.Hour)
	or(&o.Ahead, 2*24*time.Hour)
	or(&o.LockTimeout, 5*time.Second)
	or(&o.StatementTimeout, 30*time.Second)
	or(&o.IdleTimeout, time.Minute)
	or(&o.CommitTimeout, 30*time.Second)
	or(&o.DropTimeout, 100*time.Millisecond)
	switch {
	case o.Window < 0, o.Ahead < 0, o.CommitTimeout < 0, o.DropTimeout < 0:
		return o, broker.Errorf(broker.ErrInvalid, nil, "dedup/postgres: window %v, ahead %v, commit timeout %v, drop timeout %v", o.Window, o.Ahead, o.CommitTimeout, o.DropTimeout)
	case strings.ContainsRune(o.Schema, 0):
		return o, broker.Errorf(broker.ErrInvalid, nil, "dedup/postgres: schema %q", o.Schema)
	}
	return o, o.Horizon.Check(o.Window)
}

// settings is the SQL that bounds a transaction's waits.
func (o Options) settings() string {
	var b strings.Builder
	for _, s := range []struct {
		name string
		d    time.Duration
	}{
		{"lock_timeout", o.LockTimeout}, {"statement_timeout", o.StatementTimeout}, {"idle_in_transaction_session_timeout", o.IdleTimeout},
	} {
		if s.d > 0 {
			fmt.Fprintf(&b, "; set local %s = %d", s.name, max(s.d.Milliseconds(), 1))
		}
	}
	return b.String()
}

// tableTexts are the statements on a table of markers.
type tableTexts struct{ one, claim, there, release string }

// texts are the statements, with the schema in them.
type texts struct {
	schema, begin, settings                              string
	plainTable, timedTable                               tableTexts
	load, place, move                                    string
	timed                                                string // the partitioned table
	partitions, partitionOf, attach, drop, expire, clock string
	outbox                                               outboxTexts
}

// What claims: an insert of the markers whose lock was had. At another isolation
// level it inserts nothing.
const (
	claimOneText = `INSERT INTO {table} (key) SELECT {key}
	WHERE pg_try_advisory_xact_lock($2) AND current_setting('transaction_isolation') = 'read committed' ON CONFLICT DO NOTHING`
	claimText = `INSERT INTO {table} (key) SELECT key FROM unnest({keys}, {locks}) AS u (key, lock)
	WHERE pg_try_advisory_xact_lock(lock) AND current_setting('transaction_isolation') = 'read committed' ON CONFLICT DO NOTHING RETURNING key`
	// Which of the others are there; and no marker at all, if the level is another.
	thereText = `SELECT key FROM {table} WHERE key = ANY ({keys})
	UNION ALL SELECT '00000000-0000-0000-0000-000000000000' WHERE current_setting('transaction_isolation') <> 'read committed'`
	releaseText = "DELETE FROM {table} WHERE key = ANY ({keys})"
)

// newTexts makes the statements; asText sends arrays and UUIDs as text, which every
// driver can.
func newTexts(o Options, asText bool) texts {
	schema := pgx.Identifier{o.Schema}.Sanitize()
	plain, timed, position := schema+".onceline_marker", schema+".onceline_marker_timed", schema+".onceline_position"
	in := func(query, table string) string { return strings.ReplaceAll(query, "{table}", table) }
	types := strings.NewReplacer("{keys}", "$1::uuid[]", "{locks}", "$2::bigint[]", "{key}", "$1::uuid")
	if asText {
		types = strings.NewReplacer("{keys}", "$1::text::uuid[]", "{locks}", "$2::text::bigint[]", "{key}", "$1::text::uuid")
	}
	on := func(table string) tableTexts {
		text := func(query string) string { return types.Replace(in(query, table)) }
		return tableTexts{text(claimOneText), text(claimText), text(thereText), text(releaseText)}
	}
	return texts{
		schema:     schema,
		begin:      "begin isolation level read committed read write" + o.settings(),
		settings:   strings.TrimPrefix(o.settings(), "; "),
		plainTable: on(plain),
		timedTable: on(timed),
		load:       in("SELECT last FROM {table} WHERE consumer = $1 AND topic = $2 AND epoch = $3 AND partition = $4", position),
		place:      in("INSERT INTO {table} (consumer, topic, epoch, partition, last) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING", position),
		move:       in("UPDATE {table} SET last = $5 WHERE consumer = $1 AND topic = $2 AND epoch = $3 AND partition = $4 AND last = $6", position),
		timed:      timed,
		partitions: `SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
			WHERE i.inhparent = to_regclass($1) ORDER BY c.relname`,
		partitionOf: in("CREATE TABLE "+schema+".%s (LIKE {table} INCLUDING ALL)", timed),
		attach:      in("ALTER TABLE {table} ATTACH PARTITION "+schema+".%s FOR VALUES FROM ('%s') TO ('%s')", timed),
		drop:        "DROP TABLE " + schema + ".%s",
		expire:      in("DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table} WHERE seen < to_timestamp($1) LIMIT $2))", plain),
		clock:       "SELECT extract(epoch FROM now())::bigint",
		outbox:      newOutboxTexts(o),
	}
}
