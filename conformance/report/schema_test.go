package report_test

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/onceline/onceline/conformance/report"
)

const schemaFile = "../../docs/report.schema.json"

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	s, err := c.Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func instance(t *testing.T, text string) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestJSONMatchesSchema(t *testing.T) {
	s := compile(t)
	for name, r := range map[string]*report.Report{"full": example(), "empty": {}} {
		if err := s.Validate(instance(t, render(t, report.WriteJSON, r))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// at follows keys and indexes into a decoded document.
func at(v any, path ...any) map[string]any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			v = v.(map[string]any)[p]
		case int:
			v = v.([]any)[p]
		}
	}
	return v.(map[string]any)
}

func TestSchemaRejects(t *testing.T) {
	s := compile(t)
	finding := []any{"targets", 0, "findings", 0}
	event := []any{"targets", 0, "findings", 0, "evidence", "history", 0}
	cases := []struct {
		name  string
		path  []any
		key   string
		value any // nil removes the key
	}{
		{"no schema", nil, "schema", nil},
		{"another schema", nil, "schema", "onceline.report/2"},
		{"seed below zero", nil, "seed", json.Number("-1")},
		{"seed over 64 bits", nil, "seed", json.Number("18446744073709551616")},
		{"started is no time", nil, "started", "yesterday"},
		{"targets missing", nil, "targets", nil},
		{"unknown field", nil, "colour", "red"},
		{"unknown kind", []any{"targets", 0}, "kind", "memory"},
		{"version is a number", []any{"targets", 0, "versions"}, "server", json.Number("2")},
		{"unknown verdict", finding, "verdict", "fine"},
		{"hop 4", finding, "hop", json.Number("4")},
		{"unknown basis", finding, "basis", "guessed"},
		{"source is text", finding, "source", "NATS-F-07"},
		{"claim empty", finding, "claim", ""},
		{"negative seconds", finding, "seconds", json.Number("-0.5")},
		{"unknown actor", event, "actor", "gremlin"},
		{"event without id", event, "id", nil},
		{"mutant not decided", []any{"mutants", 0}, "killed", "maybe"},
		{"exit 4", []any{"summary"}, "exit", json.Number("4")},
		{"count missing", []any{"summary"}, "not-verifiable", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			doc := instance(t, render(t, report.WriteJSON, example()))
			obj := at(doc, c.path...)
			if c.value == nil {
				delete(obj, c.key)
			} else {
				obj[c.key] = c.value
			}
			if s.Validate(doc) == nil {
				t.Error("the schema accepts it")
			}
		})
	}
}

// TestSchemaAndTypesAgree holds the Go types and the schema together: the same
// fields, required where they are always written, with nothing else allowed, and of one type.
func TestSchemaAndTypesAgree(t *testing.T) {
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	root := instance(t, string(text)).(map[string]any)
	seen := map[string]bool{}
	agree(t, root, root, reflect.TypeFor[report.Report](), "report", seen)
	for name := range at(root, "$defs") {
		if !seen[name] {
			t.Errorf("$defs/%s belongs to no Go type", name)
		}
	}
}

func agree(t *testing.T, root, node map[string]any, typ reflect.Type, where string, seen map[string]bool) {
	t.Helper()
	if ref, ok := node["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, "#/$defs/")
		seen[name] = true
		node = at(root, "$defs", name)
	}
	switch {
	case typ == reflect.TypeFor[time.Time]():
		if node["format"] != "date-time" {
			t.Errorf("%s: a time needs the format date-time", where)
		}
	case typ.Kind() == reflect.Struct:
		agreeStruct(t, root, node, typ, where, seen)
	case typ.Kind() == reflect.Slice:
		if node["type"] != "array" {
			t.Errorf("%s: type %v, want array", where, node["type"])
			return
		}
		agree(t, root, at(node, "items"), typ.Elem(), where+"[]", seen)
	case typ.Kind() == reflect.Map:
		agree(t, root, at(node, "additionalProperties"), typ.Elem(), where+"{}", seen)
	default:
		agreeScalar(t, node, typ, where)
	}
}

func agreeStruct(t *testing.T, root, node map[string]any, typ reflect.Type, where string, seen map[string]bool) {
	t.Helper()
	if node["type"] != "object" || node["additionalProperties"] != false {
		t.Errorf("%s: want an object without additional properties", where)
	}
	props := at(node, "properties")
	var names, always []string
	for i := range typ.NumField() {
		name, option, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
		if option != "omitempty" {
			always = append(always, name)
		}
		prop, ok := props[name].(map[string]any)
		if !ok {
			t.Errorf("%s.%s: not in the schema", where, name)
			continue
		}
		agree(t, root, prop, typ.Field(i).Type, where+"."+name, seen)
	}
	slices.Sort(names)
	if got := slices.Sorted(maps.Keys(props)); !slices.Equal(got, names) {
		t.Errorf("%s: schema has %v, the Go type has %v", where, got, names)
	}
	var required []string
	for _, r := range node["required"].([]any) {
		required = append(required, r.(string))
	}
	slices.Sort(required)
	slices.Sort(always)
	if !slices.Equal(required, always) {
		t.Errorf("%s: required %v, want what is always there: %v", where, required, always)
	}
}

var enums = map[reflect.Type][]any{
	reflect.TypeFor[report.Kind]():  {report.KindEmulator, report.KindLocal, report.KindCloud},
	reflect.TypeFor[report.Basis](): {report.Measured, report.Modelled},
	reflect.TypeFor[report.Actor](): {report.Producer, report.Broker, report.Consumer, report.Store, report.Fault, report.Clock},
	reflect.TypeFor[report.Verdict](): each(report.Verdicts(), func(v report.Verdict) any {
		return v
	}),
}

func each[T, U any](in []T, f func(T) U) []U {
	var out []U
	for _, v := range in {
		out = append(out, f(v))
	}
	return out
}

func agreeScalar(t *testing.T, node map[string]any, typ reflect.Type, where string) {
	t.Helper()
	if c, ok := node["const"]; ok {
		if c != report.Schema {
			t.Errorf("%s: constant %v", where, c)
		}
		return
	}
	if values, ok := enums[typ]; ok {
		var got, want []string
		for _, v := range node["enum"].([]any) {
			got = append(got, v.(string))
		}
		for _, v := range values {
			want = append(want, reflect.ValueOf(v).String())
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: enum %v, want %v", where, got, want)
		}
		return
	}
	if _, ok := node["enum"]; ok && typ.Kind() == reflect.Int {
		return // the exit code
	}
	want := map[reflect.Kind]string{
		reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Uint64: "integer", reflect.Float64: "number",
	}[typ.Kind()]
	if node["type"] != want {
		t.Errorf("%s: type %v, want %s", where, node["type"], want)
	}
}
