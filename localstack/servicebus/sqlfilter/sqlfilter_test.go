package sqlfilter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/localstack/servicebus/sqlfilter"
)

type message struct{ app, sys map[string]any }

func find(m map[string]any, name string) (any, bool) {
	for k, v := range m {
		if strings.EqualFold(k, name) {
			return v, true
		}
	}
	return nil, false
}

func (m message) Application(name string) (any, bool) { return find(m.app, name) }
func (m message) System(name string) (any, bool)      { return find(m.sys, name) }

var sample = message{
	app: map[string]any{"color": "blue", "price": int32(12), "Weight": 1.5, "fragile": true, "none": nil,
		"HR-ID": "x]y", "odd \"name": "q", "when": time.Unix(100, 0), "tag": "50%_off", "in": int64(3)},
	sys: map[string]any{"Label": "bus stop", "To": "Store5", "SessionId": nil},
}

func TestMatch(t *testing.T) {
	params := map[string]any{"@c": "blue", "@n": 12, "@t": time.Unix(100, 0)}
	for _, c := range []struct {
		expression string
		want       bool
	}{
		{"1=1", true}, {"1=0", false}, {"TRUE", true}, {"fragile", true}, {"not fragile", false},
		{"color = 'blue'", true}, {"COLOR = 'blue'", true}, {"color = 'Blue'", false}, {"user.color = 'blue'", true},
		{"price > 11 AND price <= 12", true}, {"price = 12.0", true}, {"price <> 12", false}, {"price != 13", true},
		{"price + 1 = 13 and price * 2 - 4 = 20", true}, {"price % 5 = 2", true}, {"price / 5 = 2", true}, {"-price < 0", true},
		{"price / 0 = 1", false}, {"weight * 2 = 3", true}, {"1.5E0 = weight", true}, {"2+3*4 = 14", true}, {"(2+3)*4 = 20", true},
		{"color + '!' = 'blue!'", true},
		{"sys.label LIKE '%bus%'", true}, {"sys.label NOT LIKE '%bus%'", false}, {"sys.Label LIKE 'b_s%p'", true},
		{`tag LIKE '50\%\_off' ESCAPE '\'`, true}, {`tag LIKE '50x_off' ESCAPE '\'`, false}, {"color LIKE ''", false},
		{"color IN ('red', 'blue')", true}, {"color NOT IN ('red')", true}, {"price IN (1, 12)", true},
		{"sys.To IN ('Store5','Store6') OR StoreId = 'Store8'", true},
		{"EXISTS(color)", true}, {"EXISTS(missing)", false}, {"NOT EXISTS(missing)", true}, {"EXISTS(none)", true}, {"exists(sys.sessionid)", false},
		{"missing IS NULL", true}, {"none IS NULL", true}, {"color IS NULL", false}, {"color IS NOT NULL", true}, {"sys.sessionid is null", true},
		// Unknown chooses nothing, and NOT of it neither.
		{"missing = 1", false}, {"NOT missing = 1", false}, {"missing <> 1", false}, {"missing = 1 OR 1=1", true},
		{"missing = 1 AND 1=1", false}, {"NOT (missing = 1 AND 1=0)", true}, {"missing NOT IN (1)", false}, {"missing NOT LIKE 'x'", false},
		{"missing + 1 = 1", false}, {"NULL = NULL", false}, {"color > 3", false}, {"NOT color > 3", false},
		{"[HR-ID] = 'x]y'", true}, {"\"odd \"\"name\" = 'q'", true}, {"[in] = 3", true}, {"'it''s' = 'it''s'", true},
		{"color = @c AND price = @n AND when = @t", true}, {"property('co' + 'lor') = 'blue'", true}, {"p('color')='blue'", true},
		{"newid() LIKE '________-____-4___-____-____________'", true},
		{"1=0 OR 1=1 AND 1=0", false}, {"NOT 1=0 AND 1=1", true}, {"(((1=1)))", true},
	} {
		f, err := sqlfilter.Parse(c.expression, params)
		if err != nil {
			t.Errorf("%s: %v", c.expression, err)
			continue
		}
		if got, err := f.Match(sample); got != c.want || err != nil {
			t.Errorf("%s is %v, %v, want %v", c.expression, got, err, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, e := range []string{"", "color =", "= 1", "color = 'x", "color = @missing", "color LIKE", "x IN ()", "x IN (1", "(1=1", "1=1)",
		"a b", "foo(1)", "x.y = 1", "EXISTS color", "EXISTS('x')", "x IS 1", "NOT", "#", "99999999999999999999 = 1", "[] = 1",
		strings.Repeat("(", 500), strings.Repeat("NOT ", 255) + "1=1 AND", strings.Repeat("x", 1025)} {
		if _, err := sqlfilter.Parse(e, nil); err == nil {
			t.Errorf("%q was taken", e)
		}
	}
	f, err := sqlfilter.Parse("sys.nothing = 1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Match(sample); err == nil {
		t.Error("a property of the service's that doesn't exist was evaluated")
	}
}

func TestAction(t *testing.T) {
	a, err := sqlfilter.ParseAction("SET source = 'routed'; SET sys.Label = color + '!' REMOVE price; SET n = price * 2;", nil)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := a.Changes(sample)
	if want := "[{false source routed false} {true Label blue! false} {false price <nil> true} {false n 24 false}]"; err != nil || fmt.Sprint(cs) != want {
		t.Errorf("got %v, %v, want %s", cs, err, want)
	}
	for _, e := range []string{"SET", "SET x", "SET x 1", "REMOVE", "x = 1", "SET a=1 b=2"} {
		if _, err := sqlfilter.ParseAction(e, nil); err == nil {
			t.Errorf("%q was taken", e)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"sys.Label LIKE '%bus%' OR user.tag IN ('a','b')", "NOT (x IS NULL) AND EXISTS([y z])", "SET a = 1; REMOVE b", "-1.5e3 % +2 <> @p"} {
		f.Add(s, "value")
	}
	f.Fuzz(func(t *testing.T, s, value string) {
		params := map[string]any{"@p": value}
		m := message{app: map[string]any{"x": value, "a": int64(1)}, sys: map[string]any{"label": value}}
		if e, err := sqlfilter.Parse(s, params); err == nil {
			e.Match(m)
		}
		if a, err := sqlfilter.ParseAction(s, params); err == nil {
			a.Changes(m)
		}
	})
}
