package report

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// files are the names that [WriteAll] writes, with what writes each.
var files = []struct {
	name  string
	write func(io.Writer, *Report) error
}{
	{"report.json", WriteJSON},
	{"report.md", WriteMarkdown},
	{"junit.xml", WriteJUnit},
	{"index.html", WriteHTML},
}

// WriteAll writes index.html, report.json, report.md and junit.xml into dir,
// which it creates if need be. All four are rendered before the first is
// written, and each replaces its predecessor in one step (a temporary file in
// dir, then a rename), so a reader never sees half a file.
func WriteAll(dir string, r *Report) error {
	bodies := make([][]byte, len(files))
	for i, f := range files {
		var b bytes.Buffer
		if err := f.write(&b, r); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		bodies[i] = b.Bytes()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for i, f := range files {
		if err := replace(filepath.Join(dir, f.name), bodies[i]); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}

// replace puts data at path in one step.
func replace(path string, data []byte) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close() // an error already: closing twice adds nothing to it
			os.Remove(tmp.Name())
		}
	}()
	if _, err = tmp.Write(data); err != nil {
		return err
	}
	// CreateTemp makes files for their owner alone; a report is for others.
	if err = tmp.Chmod(0o644); err != nil {
		return err
	}
	if err = tmp.Sync(); err != nil {
		return err
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
