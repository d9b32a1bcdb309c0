package postgres

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/onceline/onceline/dedup"
)

// TestCommitted: what the server says of a commit is believed; what a pooler between says
// of a server that it has lost leaves open what became of it, whatever it calls that.
func TestCommitted(t *testing.T) {
	of := func(severity, code string) error {
		return &pgconn.PgError{Severity: severity, SeverityUnlocalized: severity, Code: code}
	}
	for _, c := range []struct {
		err     error
		unknown bool
	}{
		{of("ERROR", "23505"), false}, {of("ERROR", "40001"), false}, {pgx.ErrTxCommitRollback, false},
		{of("ERROR", "08P01"), true}, {of("ERROR", "08006"), true}, {of("ERROR", "57P01"), true}, {of("FATAL", "57P01"), true},
		{&pgconn.PgError{Severity: "ERROR", Code: "08P01"}, true}, {errors.New("unexpected EOF"), true},
	} {
		if got := committed(c.err); errors.Is(got, dedup.ErrCommitUnknown) != c.unknown || !errors.Is(got, c.err) {
			t.Errorf("%v: %v", c.err, got)
		}
	}
	if committed(nil) != nil {
		t.Error("of no error")
	}
}
