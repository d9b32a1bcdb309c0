package report

// ledgerView is the ledger as the page shows it: each answer leads to what was seen.
type ledgerView struct {
	Pairs    []Pair
	Sections []ledgerSection
}

type ledgerSection struct {
	Title, Lead, Left, Right string
	Rows                     []ledgerRow
}

type ledgerRow struct {
	Difference
	LeftAnchor string
	Others     []ledgerSide
}

type ledgerSide struct {
	Side
	Anchor string
}

// ledger returns nil if nothing was compared.
func (v *view) ledger() *ledgerView {
	l := NewLedger(v.Report)
	if len(l.Pairs) == 0 {
		return nil
	}
	anchors := map[*Finding]string{}
	for _, fs := range v.findings {
		for _, f := range fs {
			anchors[f.Finding] = f.Anchor
		}
	}
	out := &ledgerView{Pairs: l.Pairs}
	for _, s := range ledgerSections {
		section := ledgerSection{Title: s.title, Lead: s.lead, Left: s.left, Right: s.right}
		for _, d := range l.Differences {
			if d.Kind == s.kind {
				row := ledgerRow{Difference: d, LeftAnchor: anchors[d.Left.Finding]}
				for _, side := range d.Right {
					row.Others = append(row.Others, ledgerSide{side, anchors[side.Finding]})
				}
				section.Rows = append(section.Rows, row)
			}
		}
		out.Sections = append(out.Sections, section)
	}
	return out
}

// Place is where the other of a pair runs.
func (p Pair) Place() string { return p.Other.place() }

// Versions are those of the other of a pair.
func (p Pair) Versions() string { return p.Other.releases() }
