package servicebus

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// ruleDescription is that of a rule.
type ruleDescription struct {
	Name   string
	Filter *filterDescription
	Action *struct {
		Type          string `xml:"http://www.w3.org/2001/XMLSchema-instance type,attr"`
		SQLExpression string `xml:"SqlExpression"`
		Parameters    keyValues
	}
}

type filterDescription struct {
	Type             string `xml:"http://www.w3.org/2001/XMLSchema-instance type,attr"`
	SQLExpression    string `xml:"SqlExpression"`
	Parameters       keyValues
	CorrelationID    *string `xml:"CorrelationId"`
	MessageID        *string `xml:"MessageId"`
	To               *string
	ReplyTo          *string
	Label            *string
	SessionID        *string `xml:"SessionId"`
	ReplyToSessionID *string `xml:"ReplyToSessionId"`
	ContentType      *string
	Properties       keyValues
}

type keyValues struct {
	List []struct {
		Key   string
		Value struct {
			Type string `xml:"http://www.w3.org/2001/XMLSchema-instance type,attr"`
			Text string `xml:",chardata"`
		}
	} `xml:"KeyValueOfstringanyType"`
}

func (kv keyValues) values() ([]appValue, error) {
	var vs []appValue
	for _, e := range kv.List {
		v, err := typedValue(e.Value.Type, e.Value.Text)
		if err != nil {
			return nil, fmt.Errorf("the value of %s: %w", e.Key, err)
		}
		vs = append(vs, appValue{e.Key, v})
	}
	return vs, nil
}

// typedValue reads a value whose type is one of XML Schema's, with any prefix.
func typedValue(typ, text string) (any, error) {
	for i := range typ {
		if typ[i] == ':' {
			typ = typ[i+1:]
			break
		}
	}
	switch typ {
	case "string", "":
		return text, nil
	case "boolean":
		return strconv.ParseBool(text)
	case "int", "long", "short":
		return strconv.ParseInt(text, 10, 64)
	case "double", "float", "decimal":
		return strconv.ParseFloat(text, 64)
	case "dateTime":
		return time.Parse(time.RFC3339Nano, text)
	}
	return nil, fmt.Errorf("the type %q is not known", typ)
}

// systemFields are the properties that a correlation filter names, in the order of
// the document.
func (f *filterDescription) systemFields() []struct {
	name  string
	value *string
} {
	return []struct {
		name  string
		value *string
	}{
		{"CorrelationId", f.CorrelationID}, {"MessageId", f.MessageID}, {"To", f.To}, {"ReplyTo", f.ReplyTo}, {"Label", f.Label},
		{"SessionId", f.SessionID}, {"ReplyToSessionId", f.ReplyToSessionID}, {"ContentType", f.ContentType},
	}
}

// rule turns a description into ours.
func (d *ruleDescription) rule() (*rule, error) {
	r := &rule{name: d.Name, filter: trueFilter{}}
	if r.name == "" {
		r.name = defaultRule
	}
	var err error
	if d.Filter != nil {
		if r.filter, err = d.Filter.filter(); err != nil {
			return nil, err
		}
	}
	if d.Action != nil && d.Action.Type == "SqlRuleAction" && d.Action.SQLExpression != "" {
		params, err := d.Action.Parameters.values()
		if err != nil {
			return nil, err
		}
		if r.action, err = newAction(d.Action.SQLExpression, params); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (f *filterDescription) filter() (filter, error) {
	switch f.Type {
	case "TrueFilter", "":
		return trueFilter{}, nil
	case "FalseFilter":
		return falseFilter{}, nil
	case "SqlFilter":
		params, err := f.Parameters.values()
		if err != nil {
			return nil, err
		}
		return newSQLFilter(f.SQLExpression, params)
	case "CorrelationFilter":
		c := &correlation{}
		for _, s := range f.systemFields() {
			if s.value != nil {
				c.system = append(c.system, systemValue{s.name, *s.value})
			}
		}
		var err error
		c.application, err = f.Properties.values()
		return c, err
	}
	return nil, fmt.Errorf("the filter %q is not known", f.Type)
}

// describe writes the description of a rule.
func (r *rule) describe() string {
	var w writer
	w.WriteString("<RuleDescription" + schemas + ">")
	switch f := r.filter.(type) {
	case falseFilter:
		w.WriteString(`<Filter i:type="FalseFilter"><SqlExpression>1=0</SqlExpression><CompatibilityLevel>20</CompatibilityLevel></Filter>`)
	case *sqlFilter:
		w.WriteString(`<Filter i:type="SqlFilter">`)
		w.text("SqlExpression", f.expression)
		w.WriteString(`<CompatibilityLevel>20</CompatibilityLevel>`)
		w.keyValues("Parameters", f.params)
		w.WriteString("</Filter>")
	case *correlation:
		w.WriteString(`<Filter i:type="CorrelationFilter">`)
		for _, s := range f.system {
			w.text(s.name, s.value)
		}
		w.keyValues("Properties", f.application)
		w.WriteString("</Filter>")
	default:
		w.WriteString(`<Filter i:type="TrueFilter"><SqlExpression>1=1</SqlExpression><CompatibilityLevel>20</CompatibilityLevel></Filter>`)
	}
	if r.action == nil {
		w.WriteString(`<Action i:type="EmptyRuleAction"/>`)
	} else {
		w.WriteString(`<Action i:type="SqlRuleAction">`)
		w.text("SqlExpression", r.action.expression)
		w.WriteString(`<CompatibilityLevel>20</CompatibilityLevel>`)
		w.keyValues("Parameters", r.action.params)
		w.WriteString("</Action>")
	}
	w.text("CreatedAt", at(r.created))
	w.text("Name", r.name)
	w.WriteString("</RuleDescription>")
	return w.String()
}

// keyValues writes typed values, with the prefix of the service, by whose length one
// of the vendor's clients takes it off.
func (w *writer) keyValues(name string, vs []appValue) {
	if len(vs) == 0 {
		return
	}
	w.WriteString("<" + name + ">")
	for _, v := range vs {
		typ, text := xmlValue(v.value)
		w.WriteString("<KeyValueOfstringanyType>")
		w.text("Key", v.key)
		w.WriteString(`<Value i:type="d6p1:` + typ + `" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">` + escape(text) + `</Value></KeyValueOfstringanyType>`)
	}
	w.WriteString("</" + name + ">")
}

func xmlValue(v any) (typ, text string) {
	switch v := v.(type) {
	case bool:
		return "boolean", strconv.FormatBool(v)
	case float64:
		return "double", strconv.FormatFloat(v, 'g', -1, 64)
	case time.Time:
		return "dateTime", v.UTC().Format(time.RFC3339Nano)
	case string:
		return "string", v
	}
	if n, ok := integer(v); ok {
		return "int", strconv.FormatInt(n, 10)
	}
	return "string", fmt.Sprint(v)
}

func (s *Server) listRules(r *atomRequest, q *queue) atomAnswer {
	return s.feed(r, "Rules", len(q.rules), func(i int) item {
		return item{q.path + "/Rules/" + q.rules[i].name, q.rules[i].name, q.rules[i].describe()}
	})
}

// rulesRequest is about one rule.
func (s *Server) rulesRequest(r *atomRequest, q *queue, name string) atomAnswer {
	old := q.rule(name)
	switch r.method {
	case http.MethodGet:
		if old == nil {
			return refuseFor(fmt.Errorf("%w: rule %s", ErrNotFound, name))
		}
		return s.entry(r, http.StatusOK, old.name, old.describe())
	case http.MethodDelete:
		if err := q.removeRule(name); err != nil {
			return refuseFor(err)
		}
		return atomAnswer{status: http.StatusOK}
	case http.MethodPut:
	default:
		return refusal(http.StatusMethodNotAllowed, "SubCode=40500. Method not allowed.")
	}
	var doc document
	if err := xml.Unmarshal(r.body, &doc); err != nil || doc.Rule == nil {
		return refuseFor(fmt.Errorf("%w: no description of a rule: %v", ErrInvalid, err))
	}
	made, err := doc.Rule.rule()
	if err != nil {
		return refuseFor(fmt.Errorf("%w: %v", ErrInvalid, err))
	}
	made.name = name
	status := http.StatusCreated
	switch {
	case r.update && old == nil:
		err = fmt.Errorf("%w: rule %s", ErrNotFound, name)
	case r.update:
		status = http.StatusOK
		made.name, made.created = old.name, old.created
		*old = *made
	default:
		err = q.addRule(made)
	}
	if err != nil {
		return refuseFor(err)
	}
	return s.entry(r, status, made.name, made.describe())
}
