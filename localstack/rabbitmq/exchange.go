package rabbitmq

import (
	"bytes"
	"slices"
	"strings"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// exchange routes messages to queues and other exchanges.
type exchange struct {
	v          *vhost
	name       string
	kind       string
	durable    bool
	autoDelete bool
	internal   bool
	args       amqp.Table
	alternate  string // where what reaches no queue goes; "" is nowhere

	bindings []*binding // in the order of their making
	sources  int        // bindings of other exchanges to this one

	routes map[string][]*queue // by routing key, as of topology
	asOf   uint64
}

// binding leads from an exchange to a queue or to an exchange.
type binding struct {
	key   string
	args  amqp.Table
	raw   []byte // of args: what makes two bindings equal
	queue *queue
	to    *exchange
	match headerMatch // of a headers exchange
}

// find returns the place of the binding that is equal to b, or -1.
func (x *exchange) find(b *binding) int {
	return slices.IndexFunc(x.bindings, func(o *binding) bool {
		return o.key == b.key && o.queue == b.queue && o.to == b.to && bytes.Equal(o.raw, b.raw)
	})
}

// add makes a binding unless it is there already.
func (x *exchange) add(b *binding) {
	if x.find(b) >= 0 {
		return
	}
	x.bindings = append(x.bindings, b)
	if b.to != nil {
		b.to.sources++
	}
	x.v.topology++
}

// drop removes bindings. An exchange that deletes itself does so when its last
// one is gone.
func (x *exchange) drop(which func(b *binding) bool) {
	before := len(x.bindings)
	x.bindings = slices.DeleteFunc(x.bindings, func(b *binding) bool {
		if !which(b) {
			return false
		}
		if b.to != nil {
			b.to.sources--
		}
		return true
	})
	if len(x.bindings) == before {
		return
	}
	x.v.topology++
	if x.autoDelete && len(x.bindings) == 0 {
		x.delete()
	}
}

// delete removes the exchange and the bindings from and to it.
func (x *exchange) delete() {
	if x.v.exchanges[x.name] != x {
		return
	}
	delete(x.v.exchanges, x.name)
	x.v.topology++
	x.autoDelete = false
	x.drop(func(*binding) bool { return true })
	for _, from := range x.v.sortedExchanges() {
		from.drop(func(b *binding) bool { return b.to == x })
	}
}

func (v *vhost) sortedExchanges() []*exchange {
	list := make([]*exchange, 0, len(v.exchanges))
	for _, x := range v.exchanges {
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b *exchange) int { return strings.Compare(a.name, b.name) })
	return list
}

func knownKind(kind string) bool {
	switch kind {
	case "direct", "fanout", "topic", "headers":
		return true
	}
	return false
}

func (ch *channel) exchangeDeclare(d *amqp.Decoder) *exception {
	d.Uint16()
	name, kind := stripCRLF(d.Short()), string(d.Short())
	passive, durable, autoDelete, internal, noWait := d.Bit(), d.Bit(), d.Bit(), d.Bit(), d.Bit()
	args := d.Table()
	v := ch.c.vhost
	if d.Err() != nil {
		return nil
	}
	if e := ch.declareExchange(&exchange{v: v, name: name, kind: kind, durable: durable, autoDelete: autoDelete, internal: internal, args: args}, passive); e != nil {
		return e
	}
	if !noWait {
		ch.reply(amqp.ExchangeDeclareOk)
	}
	return nil
}

func (ch *channel) declareExchange(x *exchange, passive bool) *exception {
	if !passive && !knownKind(x.kind) {
		code := amqp.PreconditionFailed
		if ch.c.s.release == V3 {
			code = amqp.CommandInvalid
		}
		return refuse(code, "unknown exchange type '%s'", x.kind)
	}
	if x.name == "" {
		return refuseDefaultExchange()
	}
	old := x.v.exchanges[x.name]
	switch {
	case passive && old == nil:
		return refuseNotFound("exchange", x.name, x.v.name)
	case passive:
		return nil
	case old != nil:
		return old.equivalent(x)
	case strings.HasPrefix(x.name, "amq."):
		return refuse(amqp.AccessRefused, "exchange name '%s' contains reserved prefix 'amq.*'", x.name)
	}
	if ae, ok := x.args.Get("alternate-exchange"); ok {
		if x.alternate, ok = ae.(string); !ok {
			return refuse(amqp.PreconditionFailed, "invalid type '%s' for arg 'alternate-exchange' in exchange '%s' in vhost '%s'", typeName(ae), x.name, x.v.name)
		}
	}
	x.v.exchanges[x.name] = x
	x.v.topology++
	return nil
}

func refuseDefaultExchange() *exception {
	return refuse(amqp.AccessRefused, "operation not permitted on the default exchange")
}

// equivalent refuses a declaration that differs from what there is.
func (x *exchange) equivalent(o *exchange) *exception {
	what := "exchange '" + x.name + "' in vhost '" + x.v.name + "'"
	switch {
	case x.kind != o.kind:
		return inequivalent("type", what, "'"+o.kind+"'", "'"+x.kind+"'")
	case x.durable != o.durable:
		return inequivalent("durable", what, boolText(o.durable), boolText(x.durable))
	case x.autoDelete != o.autoDelete:
		return inequivalent("auto_delete", what, boolText(o.autoDelete), boolText(x.autoDelete))
	case x.internal != o.internal:
		return inequivalent("internal", what, boolText(o.internal), boolText(x.internal))
	}
	return equivalentArgs(x.args, o.args, what, []string{"alternate-exchange"})
}

func (ch *channel) exchangeDelete(d *amqp.Decoder) *exception {
	d.Uint16()
	name := stripCRLF(d.Short())
	ifUnused, noWait := d.Bit(), d.Bit()
	if d.Err() != nil {
		return nil
	}
	x := ch.c.vhost.exchanges[name]
	switch {
	case name == "":
		return refuseDefaultExchange()
	case strings.HasPrefix(name, "amq."):
		return refuse(amqp.AccessRefused, "deletion of system exchange '%s' in vhost '%s' not allowed", name, ch.c.vhost.name)
	case x != nil && ifUnused && (len(x.bindings) > 0 || x.sources > 0):
		return refuse(amqp.PreconditionFailed, "exchange '%s' in vhost '%s' in use", name, ch.c.vhost.name)
	case x != nil:
		x.delete()
	}
	if !noWait {
		ch.reply(amqp.ExchangeDeleteOk)
	}
	return nil
}

func (ch *channel) exchangeBind(d *amqp.Decoder, add bool) *exception {
	d.Uint16()
	to, from, key := stripCRLF(d.Short()), stripCRLF(d.Short()), string(d.Short())
	noWait := d.Bit()
	b := newBinding(key, d.Table())
	if d.Err() != nil {
		return nil
	}
	if to == "" || from == "" {
		return refuseDefaultExchange()
	}
	v := ch.c.vhost
	x := v.exchanges[from]
	b.to = v.exchanges[to]
	if e := ch.bind(x, b, add, from, "exchange", to, b.to != nil); e != nil {
		return e
	}
	if !noWait && add {
		ch.reply(amqp.ExchangeBindOk)
	} else if !noWait {
		ch.reply(amqp.ExchangeUnbindOk)
	}
	return nil
}

func newBinding(key string, args amqp.Table) *binding {
	b := &binding{key: key, args: args, match: parseMatch(args)}
	args = slices.Clone(args)
	slices.SortStableFunc(args, func(a, b amqp.Field) int { return strings.Compare(a.Name, b.Name) })
	b.raw = args.Append(nil)
	return b
}

// bind makes or removes a binding. To remove one that isn't there is no error,
// also where an end of it is missing.
func (ch *channel) bind(x *exchange, b *binding, add bool, from, kind, to string, found bool) *exception {
	v := ch.c.vhost
	switch {
	case !add && (x == nil || !found):
		return nil
	case x == nil:
		return refuseNotFound("exchange", from, v.name)
	case !found:
		return refuseNotFound(kind, to, v.name)
	case !add:
		if i := x.find(b); i >= 0 {
			old := x.bindings[i]
			x.drop(func(o *binding) bool { return o == old })
		}
		return nil
	}
	if x.kind == "headers" && b.match.bad != "" {
		return refuse(amqp.PreconditionFailed, "%s", b.match.bad)
	}
	x.add(b)
	return nil
}

// stripCRLF removes line ends from a name, as RabbitMQ does.
func stripCRLF(b []byte) string {
	s := string(b)
	if !strings.ContainsAny(s, "\r\n") {
		return s
	}
	return strings.NewReplacer("\r", "", "\n", "").Replace(s)
}
