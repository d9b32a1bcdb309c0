package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	driversql "github.com/go-sql-driver/mysql"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/mysql"
)

// TestRights: a user who lacks rights is told at the start which, and by which statements
// to give them; with these the store does all that it is for, and with rights by a role too.
func TestRights(t *testing.T) {
	server := start(t)
	first := connect(t, server, "")
	db := newDatabase(t, server, first)
	open(t, db, mysql.Options{})
	var name string
	if err := db.QueryRow("SELECT database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	// as connects as a user, whose name is as odd as it may be.
	as := func(user string) *sql.DB {
		t.Helper()
		config, err := driversql.ParseDSN(dsn(t, server, name))
		if err != nil {
			t.Fatal(err)
		}
		config.User, config.Logger = user, &driversql.NopLogger{}
		connector, err := driversql.NewConnector(config)
		if err != nil {
			t.Fatal(err)
		}
		db := sql.OpenDB(connector)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	user := "o'app@shop"
	exec(t, first, "CREATE USER 'o''app@shop'@'%'", "GRANT SELECT, INSERT ON "+name+".ledger TO 'o''app@shop'@'%'",
		"GRANT SELECT ON "+name+".onceline_marker TO 'o''app@shop'@'%'")
	s, err := mysql.New(t.Context(), as(user), mysql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	told := s.VerifyOutbox(t.Context())
	if !errors.Is(told, dedup.ErrVerify) || !strings.Contains(told.Error(), "the user lacks INSERT, DELETE on onceline_marker;") || !strings.Contains(told.Error(), "the user lacks SELECT, UPDATE on onceline_slot;") || strings.Contains(told.Error(), "missing") {
		t.Errorf("%v", told)
	}
	grants := regexp.MustCompile("GRANT .*").FindAllString(told.Error(), -1)
	if len(grants) != 9 {
		t.Fatalf("%d statements: %v", len(grants), told)
	}
	exec(t, first, grants...)
	if err := s.VerifyOutbox(t.Context()); err != nil {
		t.Error(err)
	}
	everything(t, s)

	// Each of them is needed: without it the store is refused, and it alone is told.
	for _, grant := range grants {
		rights, rest, _ := strings.Cut(strings.TrimPrefix(grant, "GRANT "), " ON ")
		table, _, _ := strings.Cut(rest, " TO ")
		for right := range strings.SplitSeq(rights, ", ") {
			revoke := fmt.Sprintf("REVOKE %s ON %s FROM 'o''app@shop'@'%%'", right, table)
			exec(t, first, revoke)
			if err := s.VerifyOutbox(t.Context()); !errors.Is(err, dedup.ErrVerify) || !strings.Contains(err.Error(), "the user lacks "+right+" on ") || strings.Count(err.Error(), "lacks") != 1 {
				t.Errorf("%s: %v", revoke, err)
			}
			exec(t, first, fmt.Sprintf("GRANT %s ON %s TO 'o''app@shop'@'%%'", right, table))
		}
	}

	exec(t, first, "CREATE ROLE app", "GRANT SELECT, INSERT, UPDATE, DELETE ON "+name+".* TO app", "CREATE USER byrole@'%'", "GRANT app TO byrole@'%'", "SET DEFAULT ROLE app FOR byrole@'%'")
	s, err = mysql.New(t.Context(), as("byrole"), mysql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.VerifyOutbox(t.Context()); err != nil {
		t.Errorf("rights by a role: %v", err)
	}
	// Who may nothing isn't told to make tables that are there.
	exec(t, first, "CREATE USER nobody@'%'", "GRANT SELECT ON "+name+".ledger TO nobody@'%'")
	if s, err = mysql.New(t.Context(), as("nobody"), mysql.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context()); !errors.Is(err, dedup.ErrVerify) || strings.Contains(err.Error(), "missing") || strings.Count(err.Error(), "GRANT ") != 7 {
		t.Errorf("%v", err)
	}
}

// everything has the store do what it is for.
func everything(t *testing.T, s *mysql.Store) {
	t.Helper()
	ctx := t.Context()
	in := dedup.New[*sql.Tx](s, "c", dedup.Options{})
	for _, want := range []dedup.Outcome{dedup.Applied, dedup.Duplicate} {
		once(t, in, dedup.Key{ID: "a"}, want)
	}
	results, _ := dedup.OnceBatch(ctx, in, []string{"b", "bad", "c"}, func(id string) dedup.Key { return dedup.Key{ID: id} }, func(ctx context.Context, tx *sql.Tx, id string) error {
		if id == "bad" {
			return errors.New("bad")
		}
		return effect(ctx, tx, id)
	})
	if results[0].Outcome != dedup.Applied || results[1].Outcome != dedup.Failed || results[2].Outcome != dedup.Applied {
		t.Errorf("%+v", results)
	}
	p := dedup.NewPosition[*sql.Tx](s, "c", dedup.Options{})
	for i := range int64(2) {
		if _, err := dedup.AppliedFrom(ctx, p, dedup.Partition{Topic: "t"}, i-1, []int64{i}, func(o int64) int64 { return o }, func(ctx context.Context, tx *sql.Tx, o int64) error { return nil }); err != nil {
			t.Error(err)
		}
	}
	c, err := dedup.NewCalls(s, "c", dedup.CallOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if outcome, _, err := c.Once(ctx, "a", nil, func(context.Context, string) ([]byte, error) { return nil, nil }); outcome != dedup.Applied {
		t.Error(outcome, err)
	}
	out := dedup.NewOutbox(s, "orders", dedup.OutboxOptions{})
	defer out.Close(context.WithoutCancel(ctx))
	if err := out.InTx(ctx, func(tx *sql.Tx) error { return out.AddTx(ctx, tx, broker.Message{ID: "a"}) }); err != nil {
		t.Error(err)
	}
	relay := dedup.NewRelay(s, "orders", publisher{answer: func(broker.Message) broker.Receipt { return broker.Receipt{Verdict: broker.Stored} }}, dedup.RelayOptions{})
	if n, err := relay.Drain(ctx); err != nil || relay.Stats().Sent() != 1 {
		t.Error(n, err)
	}
	if _, err := s.Expire(ctx); err != nil {
		t.Error(err)
	}
}
