package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/onceline/onceline/conformance/report"
)

// The pages that are made from the code are as the code says.
func TestReferenceIsCurrent(t *testing.T) {
	t.Parallel()
	if _, stderr, code := onceline(t.Context(), "reference", "--check", "../../docs"); code != 0 {
		t.Error(stderr)
	}
}

func TestReference(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, stderr, code := onceline(t.Context(), "reference", dir); code != 0 {
		t.Fatal(stderr)
	}
	if _, stderr, code := onceline(t.Context(), "reference", "--check", dir); code != 0 {
		t.Error(stderr)
	}
	page := filepath.Join(dir, "boundaries", "kafka.md")
	if err := os.WriteFile(page, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := onceline(t.Context(), "reference", "--check", dir); code != report.ExitUnknown || stderr == "" {
		t.Errorf("exit %d, %q", code, stderr)
	}
}
