package sqlfilter

import "fmt"

// Action is what a rule does to the messages that it chooses: statements SET and
// REMOVE. It is safe for concurrent use.
type Action struct{ statements []statement }

type statement struct {
	property
	value node // nil: REMOVE
}

// Change is what becomes of one property. Remove is set where it goes.
type Change struct {
	System bool
	Name   string
	Value  any
	Remove bool
}

// ParseAction reads statements. Semicolons between them may be left out.
func ParseAction(expression string, params map[string]any) (*Action, error) {
	p, err := newParser(expression, params)
	if err != nil {
		return nil, err
	}
	var a Action
	for !p.at(end, "") {
		remove := p.accept(keyword, "REMOVE")
		if !remove {
			if err := p.expect(keyword, "SET"); err != nil {
				return nil, err
			}
		}
		var st statement
		if st.property, err = p.property(); err != nil {
			return nil, err
		}
		if !remove {
			if err := p.expect(symbol, "="); err != nil {
				return nil, err
			}
			if st.value, err = p.sum(); err != nil {
				return nil, err
			}
		}
		a.statements = append(a.statements, st)
		p.accept(symbol, ";")
	}
	return &a, nil
}

// Changes says what the statements do to a message. Each sees what it was before
// all of them.
func (a *Action) Changes(m Message) ([]Change, error) {
	var cs []Change
	for _, st := range a.statements {
		if st.value == nil {
			cs = append(cs, Change{System: st.system, Name: st.name, Remove: true})
			continue
		}
		v, err := st.value(m)
		if err != nil {
			return nil, fmt.Errorf("setting %s: %w", st.name, err)
		}
		cs = append(cs, Change{System: st.system, Name: st.name, Value: v})
	}
	return cs, nil
}
