package mysql

import (
	"context"
	"fmt"
	"strings"
)

// wanted is what Verify wants of a table: its primary key, and what the store does with
// it.
type wanted struct{ table, key, rights string }

var (
	markerTables = []wanted{
		{plainTable, "marker", "SELECT, INSERT, DELETE"},
		{timedTable, "marker", "SELECT, INSERT, DELETE"},
		{"onceline_floor", "one", "SELECT, UPDATE"},
		{"onceline_slot", "slot", "SELECT, UPDATE"},
		{"onceline_sync", "connection", "SELECT, INSERT, UPDATE"},
		{"onceline_position", "consumer,topic,epoch,part", "SELECT, INSERT, UPDATE"},
		{"onceline_call", "marker", "SELECT, INSERT, UPDATE, DELETE"},
	}
	outboxTables = []wanted{
		{"onceline_outbox", "seq", "SELECT, INSERT, UPDATE, DELETE"},
		{"onceline_outbox_lane", "topic,lane", "SELECT, INSERT, UPDATE"},
	}
)

// Numbers of errors that say that a right, or the table, is missing; of the last two the
// right was looked at before.
const (
	tableDenied    = 1142
	columnDenied   = 1143
	databaseDenied = 1044
	noTable        = 1146
	noDefault      = 1364
	safeUpdates    = 1175
)

// readOnly are the numbers of errors of a server that takes no writes, which Verify tells
// by itself.
var readOnly = map[uint16]bool{1290: true, 1836: true, 1792: true}

// lacks returns which rights the user lacks on a table, found out by statements that do
// nothing: what the catalog says of a user isn't all, where it has roles.
func (s *Store) lacks(ctx context.Context, w wanted) ([]string, error) {
	var missing []string
	first, _, _ := strings.Cut(w.key, ",")
	for right := range strings.SplitSeq(w.rights, ", ") {
		query := map[string]string{
			"SELECT": "SELECT 1 FROM " + w.table + " WHERE 1 = 0",
			"INSERT": "INSERT INTO " + w.table + " (" + first + ") SELECT n FROM (SELECT 0 AS n) none WHERE 1 = 0",
			"UPDATE": "UPDATE " + w.table + " SET " + first + " = 0 WHERE 1 = 0",
			"DELETE": "DELETE FROM " + w.table + " WHERE 1 = 0",
		}[right]
		_, err := s.db.ExecContext(ctx, query)
		switch n := number(err); {
		case n == tableDenied || n == columnDenied || n == databaseDenied:
			missing = append(missing, right)
		case err != nil && n != noDefault && n != safeUpdates && !readOnly[n]:
			return nil, fmt.Errorf("%s on %s: %w", right, w.table, err)
		}
	}
	return missing, nil
}

// verifyRights tells of missing rights, with the statement that gives them.
func (s *Store) verifyRights(ctx context.Context, w wanted, bad func(string, ...any)) (ok bool, err error) {
	missing, err := s.lacks(ctx, w)
	if err != nil || len(missing) == 0 {
		return err == nil, err
	}
	var user, database string
	if err := s.db.QueryRowContext(ctx, "SELECT current_user(), database()").Scan(&user, &database); err != nil {
		return false, err
	}
	rights := strings.Join(missing, ", ")
	bad("the user lacks %s on %s; GRANT %[1]s ON %[3]s.%[2]s TO %[4]s", rights, w.table, identifier(database), account(user))
	return false, nil
}

func identifier(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// account is what current_user says, as SQL: the host follows the last @.
func account(user string) string {
	name, host := user, "%"
	if i := strings.LastIndexByte(user, '@'); i >= 0 {
		name, host = user[:i], user[i+1:]
	}
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	return quote(name) + "@" + quote(host)
}
