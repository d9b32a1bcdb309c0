package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	driversql "github.com/go-sql-driver/mysql"
)

// TestFacts measures what this package is built on.
func TestFacts(t *testing.T) {
	server := start(t)
	db := newDatabase(t, server, connect(t, server, ""), "innodb_lock_wait_timeout=1")
	exec(t, db, "CREATE TABLE a (id INT PRIMARY KEY) ENGINE = InnoDB", "INSERT INTO a VALUES (1), (2)", "CREATE TABLE b (id INT) ENGINE = InnoDB")
	begin := func() *sql.Tx {
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	do := func(tx *sql.Tx, query string) error {
		_, err := tx.ExecContext(context.Background(), query)
		return err
	}
	number := func(err error) uint16 {
		var e *driversql.MySQLError
		_ = errors.As(err, &e)
		if e == nil {
			return 0
		}
		return e.Number
	}
	// MY-F-02: a key that another has inserted is waited for, to the timeout.
	one, two := begin(), begin()
	if err := errors.Join(do(one, "INSERT INTO a VALUES (3)"), do(one, "SELECT id FROM a WHERE id = 1 FOR UPDATE")); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"INSERT INTO a VALUES (3)", "INSERT IGNORE INTO a VALUES (3)"} {
		if err := do(two, query); number(err) != 1205 {
			t.Errorf("MY-F-02, %s: %v", query, err)
		}
	}
	// MY-F-01: a row that is locked is skipped.
	var got int
	rows, err := two.Query("SELECT id FROM a WHERE id IN (1, 2) ORDER BY id FOR UPDATE SKIP LOCKED")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; rows.Next(); n++ {
		if err := rows.Scan(&got); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || n != 1 || got != 2 {
		t.Errorf("MY-F-01: %d rows, the last %d, %v", n, got, err)
	}
	// MY-F-03: after a deadlock, what follows is no part of a transaction.
	if err := errors.Join(do(one, "ROLLBACK"), do(two, "ROLLBACK"), do(one, "BEGIN"), do(two, "BEGIN"),
		do(one, "SET SESSION innodb_lock_wait_timeout = 20"), do(two, "SET SESSION innodb_lock_wait_timeout = 20"),
		do(one, "INSERT INTO b VALUES (10)"), do(one, "SELECT id FROM a WHERE id = 1 FOR UPDATE"),
		do(two, "INSERT INTO b VALUES (20)"), do(two, "SELECT id FROM a WHERE id = 2 FOR UPDATE")); err != nil {
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() { first <- do(one, "SELECT id FROM a WHERE id = 2 FOR UPDATE") }()
	second := do(two, "SELECT id FROM a WHERE id = 1 FOR UPDATE")
	victim, mine := two, 20
	if second == nil {
		victim, mine = one, 10
		if err := do(two, "ROLLBACK"); err != nil {
			t.Error(err)
		}
		second = <-first
	}
	if number(second) != 1213 {
		t.Fatalf("no deadlock: %v", second)
	}
	if err := errors.Join(do(victim, "INSERT INTO b VALUES (30)"), do(victim, "ROLLBACK")); err != nil {
		t.Error(err)
	}
	var before, after int
	if err := db.QueryRow("SELECT (SELECT count(*) FROM b WHERE id = ?), (SELECT count(*) FROM b WHERE id = 30)", mine).Scan(&before, &after); err != nil || before != 0 || after != 1 {
		t.Errorf("MY-F-03: %d rows from before the deadlock, %d from behind it, %v", before, after, err)
	}
}
