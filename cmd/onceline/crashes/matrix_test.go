package crashes

import (
	"slices"
	"strings"
	"testing"
)

// slice is what of the matrix runs with all tests: "onceline crashes" runs the whole.
func slice() Plan {
	p := Plan{Parallel: 16}
	of := map[Disturbance][]Point{
		Kill:      {AfterClaim, InCommit, AfterCommit},
		Freeze:    {AfterEffect},
		CutBroker: {AfterEffect},
	}
	for _, c := range Cells([]string{"sqlite inbox"}, []string{NATS}) {
		if slices.Contains(of[c.Disturbance], c.Point) {
			p.Cells = append(p.Cells, c)
		}
	}
	for _, c := range Cells([]string{"sqlite call"}, []string{RabbitMQ}) {
		if c.Disturbance == Kill && c.Point == AfterEffect {
			p.Cells = append(p.Cells, c)
		}
	}
	p.Wrong = slices.DeleteFunc(WrongCells(Brokers()), func(w WrongCell) bool {
		return !strings.HasPrefix(w.Store, "sqlite:") || (w.Broker == NATS) == (w.Store == "sqlite: lower position")
	})
	return p
}

// TestSlice: SQLite's stores hold what they promise at some points, and the wrong ones
// of SQLite show their anomalies. What needs a server is for "onceline crashes".
func TestSlice(t *testing.T) {
	p := slice()
	r, err := Run(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != 6 || len(r.Wrong) != 5 || r.Asked() != 6 {
		t.Errorf("%d cells, %d asked, %d wrong ones", len(r.Results), r.Asked(), len(r.Wrong))
	}
	cells, wrong := r.Misses()
	for _, c := range cells {
		t.Error(c.Explain())
	}
	for _, w := range wrong {
		t.Errorf("nothing is seen of %s", w.Explain())
	}
	var table strings.Builder
	if err := r.Table(&table); err != nil {
		t.Error(err)
	}
	t.Log("\n" + table.String())
	for _, w := range r.Wrong { // what is wrong would also be a miss
		if w.Result.OK() {
			t.Errorf("%s passes as right", w.Cell)
		}
	}
}

// TestCells: the matrix has each store, broker, disturbance and point once, and each
// cell that can't be asked has a reason.
func TestCells(t *testing.T) {
	var names []string
	right := 0
	for _, s := range Stores() {
		if slices.Contains(names, s.Name) || s.What == "" {
			t.Errorf("%q twice, or without words", s.Name)
		}
		names = append(names, s.Name)
		if !s.Wrong {
			right++
		}
	}
	cells := Cells(names, Brokers())
	if want := right * len(Brokers()) * len(Disturbances()) * len(Points()); len(cells) != want {
		t.Errorf("%d cells, want %d", len(cells), want)
	}
	asked := map[string]int{}
	seen := map[Cell]bool{}
	for _, c := range cells {
		if seen[c] {
			t.Errorf("%s is there twice", c)
		}
		seen[c] = true
		if c.Applies() == "" {
			asked[c.Store]++
		}
	}
	// All of a server's store but a position's on NATS; of SQLite what needs no server.
	for name, want := range map[string]int{"sqlite inbox": 40, "sqlite call": 40, "postgres inbox": 70, "postgres position": 35, "postgres call": 70,
		"postgres call.keyed": 70, "mariadb inbox": 70, "redis lease": 70, "redis lease.fenced": 70} {
		if asked[name] != want {
			t.Errorf("%s: %d cells are asked, want %d", name, asked[name], want)
		}
		delete(asked, name)
	}
	if len(asked) > 0 {
		t.Errorf("not looked at: %v", asked)
	}
	if len(WrongCells(Brokers())) != 22 {
		t.Errorf("%d wrong cells", len(WrongCells(Brokers())))
	}
	if (Cell{Store: "none"}).Applies() == "" {
		t.Error("a store that isn't there applies")
	}
}

// TestInTurn: in turn, nothing is left out that only one broker has, and each store
// meets each disturbance on each of its brokers.
func TestInTurn(t *testing.T) {
	var names []string
	for _, s := range Stores() {
		names = append(names, s.Name)
	}
	type place struct {
		store       string
		point       Point
		disturbance Disturbance
	}
	type meeting struct {
		store, broker string
		disturbance   Disturbance
	}
	want, got := map[place]bool{}, map[place]int{}
	meetings, met := map[meeting]bool{}, map[meeting]int{}
	cells := Cells(names, Brokers())
	for _, c := range cells {
		if c.Applies() == "" {
			want[place{c.Store, c.Point, c.Disturbance}] = true
			meetings[meeting{c.Store, c.Broker, c.Disturbance}] = true
		}
	}
	for _, c := range InTurn(cells) {
		if c.Applies() == "" {
			got[place{c.Store, c.Point, c.Disturbance}]++
			met[meeting{c.Store, c.Broker, c.Disturbance}]++
		}
	}
	for p := range want {
		if got[p] != 1 {
			t.Errorf("%v is there %d times", p, got[p])
		}
	}
	for m := range meetings {
		if met[m] < 3 {
			t.Errorf("%v meet %d times", m, met[m])
		}
	}
	if len(got) != len(want) || len(cells) != len(Cells(names, Brokers())) {
		t.Errorf("%d places of %d", len(got), len(want))
	}
	alone := Cells(names, []string{NATS})
	if n := len(InTurn(alone)); n != len(alone) {
		t.Errorf("of one broker %d of %d cells are left", n, len(alone))
	}
}

// TestWanted: what is promised, where it isn't once.
func TestWanted(t *testing.T) {
	for _, c := range []struct {
		store string
		what  Disturbance
		at    Point
		round int
		want  string
	}{
		{"sqlite inbox", Kill, InCommit, 0, "once"},
		{"postgres position", Freeze, AfterClaim, 1, "once"},
		{"redis lease", Kill, AfterClaim, 0, "once"},
		{"redis lease", Kill, AfterEffect, 0, "twice"},
		{"redis lease", Kill, InCommit, 0, "twice"},
		{"redis lease", Kill, InCommit, 1, "[once twice]"},
		{"redis lease", Kill, InCommit, 2, "once"},
		{"redis lease", Freeze, AfterClaim, 0, "twice"},
		{"redis lease", Restart, AfterEffect, 0, "once"},
		{"redis lease.fenced", Freeze, AfterClaim, 0, "once"},
		{"redis lease.fenced", Freeze, BeforeCommit, 0, "twice"},
		{"postgres call", Kill, AfterClaim, 0, "listed (until then never), then once"},
		{"postgres call", Kill, AfterEffect, 0, "listed (until then once), then once"},
		{"postgres call", Kill, InCommit, 0, "listed (until then once), then once"},
		{"postgres call", Kill, InCommit, 2, "once, not listed"},
		{"sqlite call", Kill, InCommit, 0, "once"},
		{"postgres call", Freeze, AfterEffect, 0, "once, not listed"},
		{"postgres call.keyed", Kill, AfterEffect, 0, "once, not listed"},
	} {
		s, ok := storeNamed(c.store)
		if !ok {
			t.Fatal(c.store)
		}
		if got := want(s, Cell{Store: c.store, Disturbance: c.what, Point: c.at}, c.round).String(); got != c.want {
			t.Errorf("%s, %s %s, round %d: %s, want %s", c.store, c.what, c.at, c.round, got, c.want)
		}
	}
}
