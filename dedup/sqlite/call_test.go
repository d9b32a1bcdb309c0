package sqlite_test

import (
	"testing"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/sqlite"
)

func TestCalls(t *testing.T) {
	storetest.RunCalls(t, func(t *testing.T) dedup.CallDriver { return open(t, sqlite.Options{}) })
}
