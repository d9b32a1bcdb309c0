package httpcall_test

import (
	"path/filepath"
	"testing"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newCalls returns calls on a store of their own.
func newCalls(t testing.TB, o dedup.CallOptions) *dedup.Calls {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := dedup.NewCalls(s, "c", o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
