package servicebus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceline/onceline/localstack/servicebus/amqp"
	"github.com/onceline/onceline/localstack/servicebus/sqlfilter"
)

// defaultRule is the name of the rule that a subscription is made with.
const defaultRule = "$Default"

// rule says which messages of its topic a subscription gets, and what is changed on
// their way.
type rule struct {
	name    string
	filter  filter
	action  *action // nil: none
	created time.Time
}

// filter chooses messages. An error says that it couldn't be evaluated.
type filter interface {
	match(v *view) (bool, error)
}

type trueFilter struct{}

func (trueFilter) match(*view) (bool, error) { return true, nil }

type falseFilter struct{}

func (falseFilter) match(*view) (bool, error) { return false, nil }

// correlation matches messages whose properties all equal those that it names,
// case and all.
type correlation struct {
	system      []systemValue
	application []appValue
}

type systemValue struct{ name, value string }

type appValue struct {
	key   string
	value any
}

func (c *correlation) match(view *view) (bool, error) {
	for _, want := range c.system {
		v, _ := view.System(want.name)
		if s, ok := v.(string); !ok || s != want.value {
			return false, nil
		}
	}
	for _, want := range c.application {
		v, ok := view.Application(want.key)
		if !ok || !sameValue(v, want.value) {
			return false, nil
		}
	}
	return true, nil
}

// sqlFilter is an expression of the SQL-like language.
type sqlFilter struct {
	expression string
	params     []appValue
	filter     *sqlfilter.Filter
}

func newSQLFilter(expression string, params []appValue) (*sqlFilter, error) {
	f, err := sqlfilter.Parse(expression, paramMap(params))
	return &sqlFilter{expression, params, f}, err
}

func paramMap(params []appValue) map[string]any {
	m := map[string]any{}
	for _, p := range params {
		m[p.key] = p.value
	}
	return m
}

func (f *sqlFilter) match(v *view) (bool, error) { return f.filter.Match(v) }

// sameValue compares two values of properties; integers of all widths are alike.
func sameValue(a, b any) bool {
	if x, ok := integer(a); ok {
		y, ok := integer(b)
		return ok && x == y
	}
	switch x := a.(type) {
	case string, bool, float64, float32:
		return a == b
	case time.Time:
		y, ok := b.(time.Time)
		return ok && x.Equal(y)
	}
	return false
}

func (q *queue) addRule(r *rule) error {
	if q.rule(r.name) != nil {
		return fmt.Errorf("%w: rule %s of %s", ErrExists, r.name, q.path)
	}
	if r.name != defaultRule {
		if err := checkName(r.name, 50); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	r.created = q.s.clock.Now()
	q.rules = append(q.rules, r)
	slices.SortFunc(q.rules, func(a, b *rule) int { return strings.Compare(a.name, b.name) })
	return nil
}

func (q *queue) rule(name string) *rule {
	for _, r := range q.rules {
		if strings.EqualFold(r.name, name) {
			return r
		}
	}
	return nil
}

func (q *queue) removeRule(name string) error {
	r := q.rule(name)
	if r == nil {
		return fmt.Errorf("%w: rule %s of %s", ErrNotFound, name, q.path)
	}
	q.rules = slices.DeleteFunc(q.rules, func(o *rule) bool { return o == r })
	return nil
}

// view shows a message to filters. What it shows is read when it is first asked
// for; of what can't be read it shows nothing.
type view struct {
	m     *message
	read  bool
	props amqp.Properties
	app   amqp.Map
}

func (v *view) load() {
	if v.read {
		return
	}
	v.read = true
	v.props, _ = amqp.ReadProperties(v.m.properties)
	if v.m.application != nil {
		r := amqp.NewReader(v.m.application)
		x, _ := r.Value()
		v.app, _ = x.(amqp.Map)
	}
}

// Application returns a property of the application by its name in any case.
func (v *view) Application(name string) (any, bool) {
	v.load()
	for _, e := range v.app {
		if k, ok := e.Key.(string); ok && strings.EqualFold(k, name) {
			return e.Value, true
		}
	}
	return nil, false
}

// System returns a property of the service by its name in any case; false if there
// is none of that name, and nil if the message has no value for it.
func (v *view) System(name string) (any, bool) {
	v.load()
	p, m := &v.props, v.m
	switch strings.ToLower(name) {
	case "messageid":
		if m.id == "" {
			return nil, true
		}
		return m.id, true
	case "sessionid":
		return textOf(p.GroupID), true
	case "correlationid":
		return p.CorrelationID, true
	case "label", "subject":
		return textOf(p.Subject), true
	case "to":
		return textOf(p.To), true
	case "replyto":
		return textOf(p.ReplyTo), true
	case "replytosessionid":
		return textOf(p.ReplyToGroupID), true
	case "contenttype":
		return textOf(p.ContentType), true
	case "partitionkey":
		if m.partition == "" {
			return nil, true
		}
		return m.partition, true
	case "enqueuedtimeutc":
		return m.enqueued, true
	case "sequencenumber", "enqueuedsequencenumber":
		return m.seq, true
	case "deliverycount":
		return int64(m.count), true
	case "scheduledenqueuetimeutc":
		return m.due, true
	case "size":
		return int64(m.size()), true
	case "forcepersistence":
		return m.header.Durable, true
	}
	return nil, false
}

func textOf(s *string) any {
	if s == nil {
		return nil
	}
	return *s
}

// action changes a message on its way into a subscription.
type action struct {
	expression string
	params     []appValue
	action     *sqlfilter.Action
}

func newAction(expression string, params []appValue) (*action, error) {
	a, err := sqlfilter.ParseAction(expression, paramMap(params))
	return &action{expression, params, a}, err
}

// apply changes m, which is a copy of its own.
func (a *action) apply(m *message) error {
	changes, err := a.action.Changes(&view{m: m})
	if err != nil {
		return err
	}
	var props []property
	for _, c := range changes {
		switch {
		case c.System:
			if err := m.setSystem(c.Name, c.Value); err != nil {
				return err
			}
		case c.Remove:
			props = append(props, property{key: c.Name})
		default:
			props = append(props, property{c.Name, amqp.AppendValue(nil, c.Value)})
		}
	}
	m.set(props)
	return nil
}

// setSystem sets one of the service's properties that rules may set.
func (m *message) setSystem(name string, value any) error {
	s, ok := value.(string)
	if !ok && value != nil {
		return fmt.Errorf("sys.%s can't be a %T", name, value)
	}
	var text *string
	if ok {
		text = &s
	}
	p, err := amqp.ReadProperties(m.properties)
	if err != nil {
		return err
	}
	switch strings.ToLower(name) {
	case "label", "subject":
		p.Subject = text
	case "to":
		p.To = text
	case "replyto":
		p.ReplyTo = text
	case "replytosessionid":
		p.ReplyToGroupID = text
	case "contenttype":
		p.ContentType = text
	case "correlationid":
		p.CorrelationID = value
	case "sessionid":
		p.GroupID = text
		m.sid, m.hasSession = s, ok
	case "messageid":
		p.MessageID = value
		m.id = s
	default:
		return fmt.Errorf("sys.%s can't be set", name)
	}
	m.properties = p.Append(nil)
	return nil
}
