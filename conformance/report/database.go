package report

// Database is what was found of a database that dedup stores can keep their state
// in. No claim is asked of it.
type Database struct {
	// Name is "postgres", "mariadb" or "redis".
	Name string `json:"name"`
	// Version is what the server says of itself.
	Version string `json:"version"`
	// Absent says what is missing where it isn't installed.
	Absent string `json:"absent"`
	// Kept is true if what the server had answered to was there after it was
	// killed with SIGKILL and started again.
	Kept bool `json:"kept"`
	// Error is why nothing was found out; empty if nothing went wrong.
	Error string `json:"error"`
}

func (d Database) mapped(f func(string) string) Database {
	d.Name, d.Version, d.Absent, d.Error = f(d.Name), f(d.Version), f(d.Absent), f(d.Error)
	return d
}

// state is the database in a sentence.
func (d *Database) state() string {
	switch {
	case d.Absent != "":
		return "not here: " + d.Absent
	case d.Error != "":
		return "failed: " + d.Error
	case d.Kept:
		return "kept over SIGKILL what it had answered to"
	}
	return "lost by SIGKILL what it had answered to"
}

// verdict is what the state counts as: a database that forgets is one that no store
// may trust.
func (d *Database) verdict() Verdict {
	switch {
	case d.Absent != "":
		return NotApplicable
	case d.Error != "":
		return Failed
	case d.Kept:
		return Equal
	}
	return Weaker
}

// databases writes the section of the Markdown report.
func (m *markdown) databases(ds []Database) {
	if len(ds) == 0 {
		return
	}
	m.line("## Databases\n")
	var rows [][]string
	for i := range ds {
		rows = append(rows, []string{mdCode(ds[i].Name), mdText(ds[i].Version), ds[i].verdict().Symbol() + " " + mdText(ds[i].state())})
	}
	m.table([]string{"database", "version", "result"}, rows)
}

// databases writes those lines of the terminal's report that tell of databases.
func (m *matrix) databases() {
	for i := range m.report.Databases {
		d := &m.report.Databases[i]
		m.entry(verdictStyle[d.verdict()], d.verdict().Symbol()+" database", oneLine(d.Name+" "+d.Version), "")
		m.indent(d.state())
	}
}
