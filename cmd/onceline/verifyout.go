package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/onceline/onceline/conformance/report"
)

// writable makes the folder if need be and reports why nothing can be written
// there.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--out %s: %w", dir, err)
	}
	tmp, err := os.CreateTemp(dir, ".onceline-*")
	if err != nil {
		return fmt.Errorf("--out %s: %w", dir, err)
	}
	if err := errors.Join(tmp.Close(), os.Remove(tmp.Name())); err != nil {
		return fmt.Errorf("--out %s: %w", dir, err)
	}
	return nil
}

// show prints the matrix, or the JSON, and writes the report's files: each of the
// two even if the other fails, so that no run's result is lost.
func (f *verifyFlags) show(stdout, stderr io.Writer, r *report.Report) error {
	printed := f.print(stdout, r)
	if err := report.WriteAll(f.out, r); err != nil {
		return errors.Join(printed, fmt.Errorf("write the report: %w", err))
	}
	if printed != nil || f.json {
		return printed
	}
	_, err := fmt.Fprintf(stderr, "%.1f s, seed %d; the report is in %s/index.html\n", r.Seconds, r.Seed, f.out)
	return err
}

func (f *verifyFlags) print(stdout io.Writer, r *report.Report) error {
	if f.json {
		return report.WriteJSON(stdout, r)
	}
	width, color := terminal(fileOf(stdout))
	if width == 0 {
		width = 132
	}
	if err := report.Matrix(stdout, r, report.MatrixOptions{Color: color, Width: width}); err != nil {
		return err
	}
	return effectLines(stdout, r)
}
