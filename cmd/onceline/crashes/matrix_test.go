package crashes

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func runs(t *testing.T, p Plan) *Report {
	t.Helper()
	began := time.Now()
	p.Finished = func(r *Result, w *WrongCell) {
		if r.NotApplicable == "" && (!r.OK() || os.Getenv("V") != "") {
			t.Logf("%5.1f %5.1f %s: %+v %v", time.Since(began).Seconds(), r.Took.Seconds(), r.Cell, r.Rounds, r.Err)
		}
		if !r.OK() && w == nil {
			t.Logf("others %v, notes %q", r.Others, r.Notes)
		}
	}
	r, err := Run(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTry(t *testing.T) {
	var cells []Cell
	for _, c := range Cells(strings.Split(os.Getenv("S"), ","), strings.Split(os.Getenv("B"), ",")) {
		if d := os.Getenv("D"); d == "" || slices.Contains(strings.Split(d, ","), string(c.Disturbance)) {
			cells = append(cells, c)
		}
	}
	r := runs(t, Plan{Cells: cells})
	t.Logf("%v", r.Took)
	for _, r := range r.Results {
		if !r.OK() {
			t.Errorf("%s", r.Cell)
		}
	}
}

func TestTryWrong(t *testing.T) {
	var cells []WrongCell
	for _, c := range WrongCells(strings.Split(os.Getenv("B"), ",")) {
		if strings.Contains(c.Store, os.Getenv("S")) {
			cells = append(cells, c)
		}
	}
	r := runs(t, Plan{Wrong: cells})
	for _, w := range r.Wrong {
		t.Logf("%v %s: %+v %v %q", w.OK(), w.Cell, w.Rounds, w.Err, w.Notes)
	}
}
