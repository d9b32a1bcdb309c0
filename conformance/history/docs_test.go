package history

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestDocs: docs/histories.md has each kind with its field names, and its example shows
// what it says.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile("../../docs/histories.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	for _, k := range Kinds() {
		if !strings.Contains(doc, "| `"+string(k)+"` | ") {
			t.Errorf("%s is missing", k)
		}
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[Event](), reflect.TypeFor[History]()} {
		for f := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(f).Tag.Get("json"), ",")
			if !strings.Contains(doc, "`"+name+"`") && !strings.Contains(doc, `"`+name+`"`) {
				t.Errorf("the field %s is missing", name)
			}
		}
	}
	for _, words := range [][]string{verdicts, actions, states} {
		for _, w := range words {
			if !strings.Contains(doc, "`"+w+"`") {
				t.Errorf("%s is missing", w)
			}
		}
	}
	_, example, _ := strings.Cut(doc, "```json\n")
	example, _, _ = strings.Cut(example, "```")
	h, err := Read(strings.NewReader(example), false)
	if err != nil {
		t.Fatal(err)
	}
	r := Check(h)
	var kinds []Kind
	for _, a := range r.Anomalies {
		kinds = append(kinds, a.Kind)
	}
	if want := []Kind{Doubled, StoredTwice, EffectTwice}; !slices.Equal(kinds, want) {
		t.Errorf("the example shows %v, want %v", kinds, want)
	}
}
