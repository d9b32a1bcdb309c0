package crashes

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Misses returns what isn't as it has to be: cells that were otherwise than their store
// promises, and wrong stores of which nothing was seen.
func (r *Report) Misses() (cells []*Result, wrong []*WrongResult) {
	for _, c := range r.Results {
		if !c.OK() {
			cells = append(cells, c)
		}
	}
	for _, w := range r.Wrong {
		if !w.OK() {
			wrong = append(wrong, w)
		}
	}
	return cells, wrong
}

// Asked counts the cells that were run.
func (r *Report) Asked() (n int) {
	for _, c := range r.Results {
		if c.NotApplicable == "" {
			n++
		}
	}
	return n
}

// Word is a cell in the table: how often the effect of a disturbed message took place.
// A call that was on the list before that has an asterisk, what is otherwise than
// promised a cross.
func (r *Result) Word() string {
	if r.NotApplicable != "" {
		return "–"
	}
	var words []string
	for _, round := range r.Rounds {
		word := string(round.Effects)
		if round.Listed {
			word += "*"
		}
		if round.Blocked {
			word = "blocked"
		}
		if word == "" {
			word = "?"
		}
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	slices.Sort(words)
	word := strings.Join(words, "/")
	switch {
	case r.Err != nil:
		word = "error ✗"
	case !r.OK():
		word += " ✗"
	}
	return word
}

// Table prints the matrix, a line for each store, broker and disturbance.
func (r *Report) Table(w io.Writer) error {
	byCell := map[Cell]*Result{}
	var rows []Cell // without a point
	for _, c := range r.Results {
		byCell[c.Cell] = c
		row := c.Cell
		row.Point = ""
		if !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
	}
	order := func(c Cell) [3]int {
		return [3]int{slices.IndexFunc(Stores(), func(s Store) bool { return s.Name == c.Store }), slices.Index(Brokers(), c.Broker), slices.Index(Disturbances(), c.Disturbance)}
	}
	slices.SortFunc(rows, func(a, b Cell) int { x, y := order(a), order(b); return slices.Compare(x[:], y[:]) })
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "store\tbroker\twhat happens")
	for _, p := range Points() {
		fmt.Fprint(t, "\t", p)
	}
	fmt.Fprintln(t)
	var reasons []string
	for _, row := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s", row.Store, row.Broker, row.Disturbance)
		for _, p := range Points() {
			row.Point = p
			word := ""
			if c := byCell[row]; c != nil {
				word = c.Word()
				if c.NotApplicable != "" {
					if !slices.Contains(reasons, c.NotApplicable) {
						reasons = append(reasons, c.NotApplicable)
					}
					word = fmt.Sprintf("– %d", slices.Index(reasons, c.NotApplicable)+1)
				}
			}
			fmt.Fprint(t, "\t", word)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i, why := range reasons {
		if _, err := fmt.Fprintf(w, "– %d: %s\n", i+1, why); err != nil {
			return err
		}
	}
	return r.wrongTable(w)
}

// wrongTable prints what was seen of the wrong stores.
func (r *Report) wrongTable(w io.Writer) error {
	if len(r.Wrong) == 0 {
		return nil
	}
	wrong := slices.Clone(r.Wrong)
	place := func(c Cell) int {
		return slices.IndexFunc(wrongWays, func(w wrongWay) bool { return w.name == c.Store })
	}
	slices.SortFunc(wrong, func(a, b *WrongResult) int {
		if d := place(a.Cell) - place(b.Cell); d != 0 {
			return d
		}
		return strings.Compare(a.Broker, b.Broker)
	})
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nwrong store\tbroker\twhat happens\tits anomaly\tseen")
	for _, c := range wrong {
		word := strings.TrimSuffix(c.Word(), " ✗") // that it isn't once is what is wanted
		if !c.OK() {
			word += " ✗"
		}
		fmt.Fprintf(t, "%s\t%s\t%s %s\t%s\t%s\n", c.Store, c.Broker, c.Disturbance, c.Point, c.Shows, word)
	}
	return t.Flush()
}

// Explain says what was otherwise than promised.
func (r *Result) Explain() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:", r.Cell)
	if r.Err != nil {
		fmt.Fprintf(&b, " %v", r.Err)
	}
	for i, round := range r.Rounds {
		if !round.OK && r.Err == nil {
			fmt.Fprintf(&b, "\n  round %d: %s took place %d times", i+1, round.ID, round.Times)
			if round.Listed {
				fmt.Fprintf(&b, ", and was listed (until then %s)", round.Meanwhile)
			}
			fmt.Fprintf(&b, "; wanted: %s", round.Wanted)
		}
	}
	if len(r.Others) > 0 {
		fmt.Fprintf(&b, "\n  undisturbed: %s", strings.Join(r.Others[:min(len(r.Others), 10)], ", "))
	}
	for _, n := range r.Notes[max(0, len(r.Notes)-5):] {
		fmt.Fprintf(&b, "\n  %s", n)
	}
	return b.String()
}
