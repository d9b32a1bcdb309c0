package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
)

// crashChild names the file on which this process applies messages until it is
// killed or done.
const crashChild = "ONCELINE_SQLITE_CRASH_CHILD"

func crashIDs() []string {
	ids := make([]string, 1500)
	for i := range ids {
		ids[i] = fmt.Sprintf("m-%04d", i)
	}
	return ids
}

// applyAll is what the child does: all messages, from the first, as after a restart
// of a consumer that has lost its acks; in batches or one by one.
func applyAll(path string) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	in := dedup.New[*sql.Tx](s, "c", dedup.Options{})
	fmt.Println("started")
	ids := crashIDs()
	for len(ids) > 0 {
		n := min(1+rand.IntN(10), len(ids))
		results, err := dedup.OnceBatch(ctx, in, ids[:n], func(id string) dedup.Key { return dedup.Key{ID: id} }, effect)
		if err != nil {
			return fmt.Errorf("%v: %w", results, err)
		}
		ids = ids[n:]
	}
	fmt.Println("done")
	return nil
}

// TestKilled: processes that apply the same messages are killed in the middle again
// and again; at the end each message has its effect once.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	s := openFile(t, path, sqlite.Options{})
	partial := 0 // kills that found some messages applied, and not all
	for round := 0; ; round++ {
		if round > 200 {
			t.Fatal("never done")
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), crashChild+"="+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		if !lines.Scan() || lines.Text() != "started" {
			t.Fatalf("the child says %q", lines.Text())
		}
		last := partial >= 3 // this one may end
		killer := time.AfterFunc(time.Duration(rand.Int64N(int64(25*time.Millisecond))), func() {
			if !last {
				_ = cmd.Process.Kill()
			}
		})
		done := lines.Scan() && lines.Text() == "done"
		err = cmd.Wait()
		killer.Stop()
		got, ledgerErr := ledger(t.Context(), s.DB())
		if ledgerErr != nil {
			t.Fatal(ledgerErr)
		}
		for id, n := range got {
			if n != 1 {
				t.Fatalf("round %d: %d effects of %s", round, n, id)
			}
		}
		if done && partial < 3 {
			t.Fatalf("all was applied after %d kills in the middle", partial)
		}
		if last {
			if !done || err != nil || len(got) != len(crashIDs()) {
				t.Errorf("%d messages have effects, want %d; the child ended by %v", len(got), len(crashIDs()), err)
			}
			break
		}
		if len(got) > 0 && len(got) < len(crashIDs()) {
			partial++
		}
	}
}
