package servicebus

import (
	"errors"
	"time"

	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// The descriptors of rules, filters and actions on the wire.
const (
	codeRule              = 0x13700000004
	codeEmptyAction       = 0x13700000005
	codeSQLAction         = 0x13700000006
	codeSQLFilter         = 0x1370000006
	codeTrueFilter        = 0x1370000007
	codeFalseFilter       = 0x1370000008
	codeCorrelationFilter = 0x1370000009
)

// ruleRequest adds, removes and lists rules by $management, as clients do that have
// no right to administer.
func (q *queue) ruleRequest(r *request, now time.Time) answer {
	if q.topic == nil {
		return failed(400, "amqp:not-allowed", "The entity is not a subscription.")
	}
	switch r.operation {
	case "com.microsoft:add-rule":
		d, _ := r.get("rule-description").(amqp.Map)
		made, err := readRule(r.text("rule-name"), d)
		if err == nil {
			err = q.addRule(made)
		}
		return ruleAnswer(err)
	case "com.microsoft:remove-rule":
		return ruleAnswer(q.removeRule(r.text("rule-name")))
	}
	skip, _ := integer(r.get("skip"))
	top, _ := integer(r.get("top"))
	var list amqp.List
	for i := max(skip, 0); i < int64(len(q.rules)) && int64(len(list)) < top; i++ {
		list = append(list, amqp.Map{{Key: "rule-description", Value: wireRule(q.rules[i])}})
	}
	if len(list) == 0 {
		return answer{code: 204, text: "No content"}
	}
	return answer{code: 200, text: "OK", body: amqp.Map{{Key: "rules", Value: list}}}
}

func ruleAnswer(err error) answer {
	switch {
	case err == nil:
		return answer{code: 200, text: "OK"}
	case errors.Is(err, ErrNotFound):
		return failed(404, "amqp:not-found", err.Error())
	case errors.Is(err, ErrExists):
		return failed(409, "com.microsoft:entity-already-exists", err.Error())
	}
	return failed(400, "com.microsoft:argument-error", err.Error())
}

func readRule(name string, d amqp.Map) (*rule, error) {
	r := &rule{name: name, filter: trueFilter{}}
	var err error
	if sql, ok := d.Get("sql-filter").(amqp.Map); ok {
		expression, _ := sql.Get("expression").(string)
		if r.filter, err = newSQLFilter(expression, nil); err != nil {
			return nil, err
		}
	}
	if c, ok := d.Get("correlation-filter").(amqp.Map); ok {
		f := &correlation{}
		for _, n := range correlationNames {
			if v, ok := c.Get(n.wire).(string); ok {
				f.system = append(f.system, systemValue{n.name, v})
			}
		}
		props, _ := c.Get("properties").(amqp.Map)
		for _, e := range props {
			if k, ok := e.Key.(string); ok {
				f.application = append(f.application, appValue{k, e.Value})
			}
		}
		r.filter = f
	}
	if a, ok := d.Get("sql-rule-action").(amqp.Map); ok {
		if expression, _ := a.Get("expression").(string); expression != "" {
			if r.action, err = newAction(expression, nil); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// correlationNames are the properties of a correlation filter, in the order of its
// list on the wire, by their names there and ours.
var correlationNames = []struct{ wire, name string }{
	{"correlation-id", "CorrelationId"}, {"message-id", "MessageId"}, {"to", "To"}, {"reply-to", "ReplyTo"},
	{"label", "Label"}, {"session-id", "SessionId"}, {"reply-to-session-id", "ReplyToSessionId"}, {"content-type", "ContentType"},
}

// wireRule is a rule as it is listed.
func wireRule(r *rule) any {
	var filter amqp.Described
	switch f := r.filter.(type) {
	case *sqlFilter:
		filter = amqp.Described{Descriptor: uint64(codeSQLFilter), Value: amqp.List{f.expression, int32(20)}}
	case *correlation:
		l := amqp.List{}
		for _, n := range correlationNames {
			var v any
			for _, s := range f.system {
				if s.name == n.name {
					v = s.value
				}
			}
			l = append(l, v)
		}
		props := amqp.Map{}
		for _, v := range f.application {
			props = append(props, amqp.Entry{Key: v.key, Value: v.value})
		}
		filter = amqp.Described{Descriptor: uint64(codeCorrelationFilter), Value: append(l, props)}
	case falseFilter:
		filter = amqp.Described{Descriptor: uint64(codeFalseFilter), Value: amqp.List{}}
	default:
		filter = amqp.Described{Descriptor: uint64(codeTrueFilter), Value: amqp.List{}}
	}
	action := amqp.Described{Descriptor: uint64(codeEmptyAction), Value: amqp.List{}}
	if r.action != nil {
		action = amqp.Described{Descriptor: uint64(codeSQLAction), Value: amqp.List{r.action.expression, int32(20)}}
	}
	return amqp.Described{Descriptor: uint64(codeRule), Value: amqp.List{filter, action, r.name, r.created}}
}
