package storetest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
)

// RunCheckpoints runs all behaviours of a store for checkpoints, each on a store of
// its own. Concurrent says that two transactions can write at a time.
func RunCheckpoints[T any](t *testing.T, concurrent bool, open func(t *testing.T) dedup.CheckpointDriver[T]) {
	t.Run("Terms", func(t *testing.T) { checkpointTerms(t, open(t)) })
	t.Run("Rows", func(t *testing.T) { checkpointRows(t, open(t)) })
	t.Run("RolledBack", func(t *testing.T) { checkpointRolledBack(t, open(t)) })
	if concurrent {
		t.Run("OwnerStays", func(t *testing.T) { checkpointOwnerStays(t, open(t)) })
	}
}

// in runs f in a transaction that has to commit.
func in[T any](t *testing.T, d dedup.CheckpointDriver[T], f func(tx T) error) {
	t.Helper()
	if err := d.Transact(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

func take[T any](t *testing.T, d dedup.CheckpointDriver[T], name string) (p dedup.PipelineRow) {
	t.Helper()
	in(t, d, func(tx T) (err error) { p, err = d.TakePipeline(t.Context(), tx, name); return err })
	return p
}

func owns[T any](t *testing.T, d dedup.CheckpointDriver[T], name string, term int64) (own bool) {
	t.Helper()
	in(t, d, func(tx T) (err error) { own, err = d.OwnPipeline(t.Context(), tx, name, term); return err })
	return own
}

// checkpointTerms: each owner has a term of its own, and only the last one owns.
func checkpointTerms[T any](t *testing.T, d dedup.CheckpointDriver[T]) {
	if err := d.VerifyCheckpoints(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := take(t, d, "a")
	if a.Term != 1 || a.Note != nil || !owns(t, d, "a", 1) || owns(t, d, "a", 2) || owns(t, d, "b", 1) {
		t.Fatalf("after the first: %+v", a)
	}
	note := []byte{0, 1, 255}
	in(t, d, func(tx T) error { return d.NotePipeline(t.Context(), tx, "a", note) })
	take(t, d, "b")
	again := take(t, d, "a")
	if again.Term != 2 || !bytes.Equal(again.Note, note) || owns(t, d, "a", 1) || !owns(t, d, "a", 2) || !owns(t, d, "b", 1) {
		t.Errorf("after the second: %+v", again)
	}
	var all []dedup.PipelineRow
	in(t, d, func(tx T) (err error) { all, err = d.Pipelines(t.Context(), tx); return err })
	if len(all) != 2 || all[0].Name != "a" || all[0].Term != 2 || !bytes.Equal(all[0].Note, note) || all[1].Name != "b" {
		t.Errorf("all: %+v", all)
	}
	if err := d.Transact(t.Context(), func(tx T) error { return d.NotePipeline(t.Context(), tx, "c", note) }); err == nil {
		t.Error("a note for a pipeline that isn't there was taken")
	}
}

// checkpointRows: rows come back as they were, the newest first; old ones go; a
// number is used once.
func checkpointRows[T any](t *testing.T, d dedup.CheckpointDriver[T]) {
	taken := time.UnixMicro(time.Now().UnixMicro())
	row := func(n int64) dedup.CheckpointRow {
		return dedup.CheckpointRow{Number: n, Term: 7, State: dedup.CheckpointPrepared, Taken: taken, Data: bytes.Repeat([]byte{byte(n), 0}, 100_000)}
	}
	for n := int64(1); n <= 5; n++ {
		in(t, d, func(tx T) error { return d.AddCheckpoint(t.Context(), tx, "a", row(n), 3) })
	}
	in(t, d, func(tx T) error {
		return d.AddCheckpoint(t.Context(), tx, "b", dedup.CheckpointRow{Number: 1, State: dedup.CheckpointCommitted}, 3)
	})
	if err := d.Transact(t.Context(), func(tx T) error { return d.AddCheckpoint(t.Context(), tx, "a", row(5), 3) }); err == nil {
		t.Error("a number was used twice")
	}
	in(t, d, func(tx T) error {
		ok, err := d.MarkCheckpoint(t.Context(), tx, "a", 5, dedup.CheckpointUndone, "aborted")
		gone, err2 := d.MarkCheckpoint(t.Context(), tx, "a", 2, dedup.CheckpointCommitted, "")
		if !ok || gone {
			t.Errorf("marked: %v, and what isn't there: %v", ok, gone)
		}
		return errors.Join(err, err2)
	})
	var rows, two []dedup.CheckpointRow
	in(t, d, func(tx T) (err error) {
		if rows, err = d.Checkpoints(t.Context(), tx, "a", 10); err == nil {
			two, err = d.Checkpoints(t.Context(), tx, "a", 2)
		}
		return err
	})
	if len(rows) != 3 || len(two) != 2 {
		t.Fatalf("%d and %d rows", len(rows), len(two))
	}
	for i, r := range rows {
		want := row(int64(5 - i))
		if i == 0 {
			want.State, want.Note = dedup.CheckpointUndone, "aborted"
		}
		if r.Number != want.Number || r.Term != 7 || r.State != want.State || r.Note != want.Note || !r.Taken.Equal(taken) || !bytes.Equal(r.Data, want.Data) {
			t.Errorf("row %d: number %d, term %d, %v %q, %v, %d bytes", i, r.Number, r.Term, r.State, r.Note, r.Taken, len(r.Data))
		}
	}
}

// checkpointRolledBack: nothing stands of what was rolled back.
func checkpointRolledBack[T any](t *testing.T, d dedup.CheckpointDriver[T]) {
	take(t, d, "a")
	broken := errors.New("broken")
	err := d.Transact(t.Context(), func(tx T) error {
		if _, err := d.TakePipeline(t.Context(), tx, "a"); err != nil {
			return err
		}
		if err := d.AddCheckpoint(t.Context(), tx, "a", dedup.CheckpointRow{Number: 1}, 3); err != nil {
			return err
		}
		return broken
	})
	if !errors.Is(err, broken) || !owns(t, d, "a", 1) {
		t.Errorf("%v, or the term rose", err)
	}
	in(t, d, func(tx T) error {
		rows, err := d.Checkpoints(t.Context(), tx, "a", 10)
		if len(rows) > 0 {
			t.Errorf("%d rows", len(rows))
		}
		return err
	})
}

// checkpointOwnerStays: nobody takes a pipeline over while its owner is about to
// commit a checkpoint.
func checkpointOwnerStays[T any](t *testing.T, d dedup.CheckpointDriver[T]) {
	take(t, d, "a")
	var term int64
	done := make(chan error, 1)
	in(t, d, func(tx T) error {
		if own, err := d.OwnPipeline(t.Context(), tx, "a", 1); err != nil || !own {
			t.Errorf("own: %v: %v", own, err)
		}
		go func() {
			done <- d.Transact(context.WithoutCancel(t.Context()), func(tx T) error {
				p, err := d.TakePipeline(context.WithoutCancel(t.Context()), tx, "a")
				term = p.Term
				return err
			})
		}()
		select {
		case err := <-done:
			t.Errorf("taken over in the middle: %v", err)
			done <- nil
		case <-time.After(200 * time.Millisecond):
		}
		return d.AddCheckpoint(t.Context(), tx, "a", dedup.CheckpointRow{Number: 1}, 3)
	})
	if err := <-done; err != nil || term != 2 {
		t.Errorf("term %d: %v", term, err)
	}
	if owns(t, d, "a", 1) {
		t.Error("the first still owns it")
	}
}
