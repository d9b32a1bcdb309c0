package postgres

import (
	_ "embed" // the schema
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/dedup"
)

//go:embed outbox.sql
var outboxSchema string

// outboxTexts are the statements on the outbox.
type outboxTexts struct {
	add, addMany                                                string
	lanes, locks, leftover, mark, read, sent, failed, clear     string
	backlog, stopped, release, drop, notify, sequence, lockName string
}

// addAtOnce is how many rows a statement adds; what is left goes one by one.
const addAtOnce = 16

// The statements, with names for parameters. Arrays go as text, which every driver
// can.
const (
	addOutboxText = "INSERT INTO {outbox} (topic, lane, hash, at, id, key, meta, body) VALUES "
	// The clock: a time that is given, or the database's.
	outboxNowText = "coalesce(@clock::bigint, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint)"
	// A row that may be sent now.
	outboxDueText = "o.topic = @topic AND o.state = 0 AND (o.due IS NULL OR o.due <= {now})"
	// ... and of whose key no earlier one is stopped or waits.
	outboxFreeText = `(o.hash = 0 OR NOT EXISTS (SELECT 1 FROM {outbox} b WHERE b.topic = o.topic AND b.hash = o.hash AND b.seq < o.seq
		AND (b.state <> 0 OR b.due IS NOT NULL) AND (b.state <> 0 AND NOT @pass::boolean OR b.state = 0 AND b.due > {now})))`
	// Lanes with rows that may be sent, from one on, whose lock was had. Each lane is looked
	// up by the index, however many rows wait: that is what LATERAL and LIMIT hold the
	// planner to, here and below.
	lanesText = `WITH l AS MATERIALIZED (SELECT g.lane FROM generate_series(0, {lanes} - 1) g (lane)
		CROSS JOIN LATERAL (SELECT FROM {outbox} o WHERE ` + outboxDueText + ` AND o.lane = g.lane LIMIT 1) o
		ORDER BY (g.lane + {lanes} - @first::int) % {lanes})
	SELECT l.lane::bigint FROM l WHERE pg_try_advisory_xact_lock(hashtext(@lock::text), l.lane) LIMIT @limit::bigint`
	// Of the lanes that a turn has marked, those that still are, and whose lock was
	// had.
	locksText = `WITH l AS MATERIALIZED (SELECT lane::int FROM {lane} WHERE topic = @topic AND lane = ANY (@lanes::text::int[]) AND turn = @turn::bigint AND upto > 0)
	SELECT l.lane::bigint FROM l WHERE pg_try_advisory_xact_lock(hashtext(@lock::text), l.lane)`
	// Rows that a relay which ended may have sent get the time on them.
	leftoverText = `WITH left_over AS (UPDATE {outbox} o SET tried = l.since FROM {lane} l
		WHERE l.topic = @topic AND l.lane = ANY (@lanes::text::int[]) AND l.upto > 0
		AND o.topic = l.topic AND o.lane = l.lane AND o.seq <= l.upto AND o.state = 0 AND o.tried IS NULL)
	UPDATE {lane} SET upto = 0 WHERE topic = @topic AND lane = ANY (@lanes::text::int[]) AND upto > 0`
	// The first rows of each lane that may be sent, which the index has in their order.
	firstText = `CROSS JOIN LATERAL (SELECT o.seq FROM {outbox} o WHERE ` + outboxDueText + ` AND o.lane = g.lane AND ` + outboxFreeText
	markText  = `INSERT INTO {lane} (topic, lane, upto, since, turn)
		SELECT @topic, c.lane, max(c.seq), {now}, @turn::bigint FROM (SELECT g.lane, f.seq FROM unnest(@lanes::text::int[]) g (lane)
			` + firstText + ` ORDER BY o.seq LIMIT @limit::bigint) f
			ORDER BY f.seq LIMIT @limit::bigint) c GROUP BY c.lane
		ON CONFLICT (topic, lane) DO UPDATE SET upto = excluded.upto, since = excluded.since, turn = excluded.turn`
	readText = `SELECT seq, lane::bigint, hash, id, key, meta, body, at, attempts::bigint, age FROM (
		SELECT r.*, sum(octet_length(r.body)) OVER (ORDER BY r.seq) - octet_length(r.body) AS before FROM (
			SELECT o.seq, o.lane, o.hash, o.id, o.key, o.meta, o.body, o.at, o.attempts, {now} - coalesce(o.tried, c.since, {now}) AS age
			FROM (SELECT f.seq, CASE WHEN l.upto >= f.seq THEN l.since END AS since FROM unnest(@lanes::text::int[]) g (lane) LEFT JOIN {lane} l ON l.topic = @topic AND l.lane = g.lane
				` + firstText + ` AND (NOT @guard::boolean OR l.upto >= o.seq) ORDER BY o.seq LIMIT @limit::bigint) f
				ORDER BY f.seq LIMIT @limit::bigint) c JOIN {outbox} o ON o.seq = c.seq) r) q
	WHERE before < @bytes::bigint ORDER BY seq`
	sentText   = "DELETE FROM {outbox} WHERE seq = ANY (@seqs::text::bigint[])"
	failedText = `UPDATE {outbox} o SET state = f.state, attempts = o.attempts + 1, reason = f.reason, due = CASE WHEN f.state = 0 THEN {now} + f.delay END,
		tried = CASE WHEN f.maybe THEN coalesce(o.tried, (SELECT l.since FROM {lane} l WHERE l.topic = o.topic AND l.lane = o.lane AND l.upto >= o.seq)) ELSE o.tried END
		FROM unnest(@seqs::text::bigint[], @states::text::smallint[], @delays::text::bigint[], @maybes::text::boolean[], @reasons::text::text[]) AS f (seq, state, delay, maybe, reason)
		WHERE o.seq = f.seq`
	clearText   = "UPDATE {lane} SET upto = 0 WHERE topic = @topic AND lane = ANY (@lanes::text::int[]) AND turn = @turn::bigint"
	backlogText = `SELECT count(*) FILTER (WHERE state = 0), count(*) FILTER (WHERE state = 0 AND attempts > 0), count(*) FILTER (WHERE state = 1),
		count(*) FILTER (WHERE state = 2), coalesce({now} - min(added) FILTER (WHERE state = 0), 0)::bigint FROM {outbox} WHERE topic = @topic`
	stoppedText = `SELECT seq, id, key, state::bigint, coalesce(reason, ''), attempts::bigint, at FROM {outbox}
		WHERE topic = @topic AND state <> 0 AND seq > @after::bigint ORDER BY seq LIMIT @limit::bigint`
	releaseOutboxText = "UPDATE {outbox} SET state = 0, tried = NULL, due = NULL, reason = NULL WHERE topic = @topic AND state <> 0 AND seq = ANY (@seqs::text::bigint[])"
	dropOutboxText    = "DELETE FROM {outbox} WHERE topic = @topic AND state <> 0 AND seq = ANY (@seqs::text::bigint[])"
	sequenceText      = `SELECT coalesce((SELECT s.seqcache FROM pg_depend d JOIN pg_sequence s ON s.seqrelid = d.objid
		WHERE d.refobjid = to_regclass(@table) AND d.deptype IN ('a', 'i') LIMIT 1), 0)`
)

func newOutboxTexts(o Options) outboxTexts {
	schema := pgx.Identifier{o.Schema}.Sanitize()
	fill := strings.NewReplacer("{outbox}", schema+".onceline_outbox", "{lane}", schema+".onceline_outbox_lane", "{lanes}", fmt.Sprint(dedup.OutboxLanes))
	text := func(query string, names ...string) string {
		query = strings.ReplaceAll(query, "{now}", outboxNowText)
		for i, name := range names {
			query = strings.ReplaceAll(query, "@"+name, fmt.Sprintf("$%d", i+1))
		}
		return fill.Replace(query)
	}
	var many strings.Builder
	for i := range addAtOnce {
		if i > 0 {
			many.WriteByte(',')
		}
		many.WriteString(addRow(i))
	}
	return outboxTexts{
		add:      text(addOutboxText + addRow(0)),
		addMany:  text(addOutboxText + many.String()),
		lanes:    text(lanesText, "topic", "clock", "first", "lock", "limit"),
		locks:    text(locksText, "topic", "lanes", "turn", "lock"),
		leftover: text(leftoverText, "topic", "lanes"),
		mark:     text(markText, "topic", "clock", "turn", "lanes", "pass", "limit"),
		read:     text(readText, "topic", "clock", "lanes", "guard", "pass", "limit", "bytes"),
		sent:     text(sentText, "seqs"),
		failed:   text(failedText, "clock", "seqs", "states", "delays", "maybes", "reasons"),
		clear:    text(clearText, "topic", "lanes", "turn"),
		backlog:  text(backlogText, "topic", "clock"),
		stopped:  text(stoppedText, "topic", "after", "limit"),
		release:  text(releaseOutboxText, "topic", "seqs"),
		drop:     text(dropOutboxText, "topic", "seqs"),
		notify:   "SELECT pg_notify('" + outboxChannel + "', $1)",
		sequence: text(sequenceText, "table"),
		lockName: "onceline outbox " + o.Schema + " ",
	}
}

// addRow is the parameters of the i-th row of a statement.
func addRow(i int) string {
	n := i * 8
	return fmt.Sprintf("($%d, $%d, $%d, $%d, $%d, $%d, $%d, $%d)", n+1, n+2, n+3, n+4, n+5, n+6, n+7, n+8)
}
