package targets

import "github.com/onceline/onceline/conformance"

// Broken is a target and the mutants of its adapter.
type Broken struct {
	conformance.Target
	Mutants []conformance.Mutant
}

// Mutants returns the embedded targets that mutants are of. Those that break any
// adapter are the reference implementation's.
func Mutants() []Broken {
	var all []Broken
	for _, t := range append([]conformance.Target{Memory()}, Embedded()...) {
		ms := conformance.MutantsOf(t.Name)
		if len(all) == 0 {
			ms = append(conformance.Mutants(), ms...)
		} else if t.Name == all[0].Name {
			continue
		}
		if len(ms) > 0 {
			all = append(all, Broken{t, ms})
		}
	}
	return all
}
