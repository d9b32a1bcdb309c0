package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/onceline/onceline/dedup"
)

// errStale: a partition that was thought to be there isn't any more. The transaction
// is tried again with what is there now.
var errStale = errors.New("dedup/postgres: a partition was dropped meanwhile")

// Conditions of PostgreSQL that say something about trying again.
const (
	checkViolation       = "23514"
	idleInTransaction    = "25P03"
	readOnlyTransaction  = "25006"
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
	operatorIntervention = "57P"
	connectionException  = "08"
	insufficientResource = "53"
	systemError          = "58"
)

// fault is dedup.Driver's Fault.
func fault(err error) dedup.Fault {
	if errors.Is(err, errStale) {
		return dedup.Busy
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		if pgconn.SafeToRetry(err) {
			return dedup.Lost
		}
		return dedup.Permanent
	}
	switch e.Code {
	case serializationFailure, deadlockDetected, lockNotAvailable:
		return dedup.Busy
	case idleInTransaction, readOnlyTransaction:
		return dedup.Lost
	}
	for _, class := range []string{operatorIntervention, connectionException, insufficientResource, systemError} {
		if strings.HasPrefix(e.Code, class) {
			return dedup.Lost
		}
	}
	if e.SeverityUnlocalized == "FATAL" || e.SeverityUnlocalized == "PANIC" {
		return dedup.Lost
	}
	return dedup.Permanent
}

// committed sorts the error of a commit: refused by the server, never sent, or
// without an answer.
func committed(err error) error {
	var e *pgconn.PgError
	switch {
	case err == nil, errors.Is(err, pgx.ErrTxCommitRollback):
		return err
	case errors.As(err, &e) && e.SeverityUnlocalized == "ERROR" && !strings.HasPrefix(e.Code, connectionException) && !strings.HasPrefix(e.Code, operatorIntervention):
		return err // and not that of a pooler which has lost its server
	case pgconn.SafeToRetry(err), errors.Is(err, pgx.ErrTxClosed):
		return fmt.Errorf("%w: commit: %w", dedup.ErrLost, err)
	}
	return fmt.Errorf("%w: %w", dedup.ErrCommitUnknown, err)
}

// outsideTx says of an error outside of a transaction, which the server didn't
// make, that the connection is lost.
func outsideTx(err error) error {
	var e *pgconn.PgError
	if err == nil || errors.As(err, &e) {
		return err
	}
	return fmt.Errorf("%w: %w", dedup.ErrLost, err)
}
