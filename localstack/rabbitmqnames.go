package localstack

import (
	"slices"
	"sort"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// hasAnswer says whether a request has an answer that could be lost; mu is held.
func hasAnswer(ch *rabbitChannel, m amqp.Method, args []byte) bool {
	d := amqp.NewDecoder(args)
	bits := func(strings, n int) bool { // the last of n bits behind some short strings
		for range strings {
			d.Short()
		}
		last := false
		for range n {
			last = d.Bit()
		}
		return last
	}
	noWait := false
	switch m {
	case amqp.BasicPublish:
		return ch.confirms != nil
	case amqp.BasicAck, amqp.BasicNack, amqp.BasicReject, amqp.BasicRecoverAsync, amqp.ConnectionTuneOk,
		amqp.ChannelCloseOk, amqp.ConnectionCloseOk, amqp.ChannelFlowOk, amqp.BasicCancelOk:
		return false
	case amqp.ConfirmSelect:
		noWait = bits(0, 1)
	case amqp.BasicCancel:
		noWait = bits(1, 1)
	case amqp.ExchangeDeclare:
		d.Uint16()
		noWait = bits(2, 5)
	case amqp.ExchangeDelete:
		d.Uint16()
		noWait = bits(1, 2)
	case amqp.ExchangeBind, amqp.ExchangeUnbind, amqp.QueueBind:
		d.Uint16()
		noWait = bits(3, 1)
	case amqp.QueueDeclare:
		d.Uint16()
		noWait = bits(1, 5)
	case amqp.QueuePurge:
		d.Uint16()
		noWait = bits(1, 1)
	case amqp.QueueDelete:
		d.Uint16()
		noWait = bits(1, 3)
	case amqp.BasicConsume:
		d.Uint16()
		noWait = bits(2, 4)
	}
	return !noWait
}

// answers says whether a method of the broker answers a request.
func answers(m, request amqp.Method) bool {
	switch request {
	case amqp.ExchangeUnbind:
		return m == amqp.ExchangeUnbindOk
	case amqp.QueueUnbind:
		return m == amqp.QueueUnbindOk
	case amqp.BasicGet:
		return m == amqp.BasicGetOk || m == amqp.BasicGetEmpty
	}
	return m == request+1
}

// publishArgs are the exchange and the key of a basic.publish.
func publishArgs(args []byte) (flags byte, exchange, key string) {
	d := amqp.NewDecoder(args)
	d.Uint16()
	exchange, key = string(d.Short()), string(d.Short())
	return d.Uint8(), exchange, key
}

// concerns says whether a request is about an entity; mu is held.
func (r *rabbitLink) concerns(ch *rabbitChannel, m amqp.Method, args []byte, name string) bool {
	if m == amqp.BasicPublish {
		_, exchange, key := publishArgs(args)
		return name == exchange || name == key || exchange != "" && r.bound(exchange, name)
	}
	names := r.entities(ch, m, args)
	switch m {
	case amqp.BasicAck, amqp.BasicNack, amqp.BasicReject: // also by an exchange of their queue
		if slices.ContainsFunc(names, func(queue string) bool { return r.bound(name, queue) }) {
			return true
		}
	}
	return slices.Contains(names, name)
}

// entities are the names of queues, exchanges and keys in a request; mu is held.
func (r *rabbitLink) entities(ch *rabbitChannel, m amqp.Method, args []byte) []string {
	d := amqp.NewDecoder(args)
	switch m {
	case amqp.BasicPublish:
		_, exchange, key := publishArgs(args)
		return []string{exchange, key}
	case amqp.ExchangeDeclare, amqp.ExchangeDelete:
		d.Uint16()
		return []string{string(d.Short())}
	case amqp.QueueDeclare, amqp.QueuePurge, amqp.QueueDelete, amqp.BasicConsume, amqp.BasicGet:
		d.Uint16()
		return []string{ch.named(d.Short())}
	case amqp.QueueBind, amqp.QueueUnbind:
		d.Uint16()
		return []string{ch.named(d.Short()), string(d.Short()), string(d.Short())}
	case amqp.ExchangeBind, amqp.ExchangeUnbind:
		d.Uint16()
		return []string{string(d.Short()), string(d.Short()), string(d.Short())}
	case amqp.BasicCancel:
		if queue, ok := ch.consumers[string(d.Short())]; ok {
			return []string{queue}
		}
	case amqp.BasicAck, amqp.BasicNack, amqp.BasicReject:
		if queue, ok := ch.source(d.Uint64()); ok {
			return []string{queue}
		}
	}
	return nil
}

// rabbitRuns bounds how many runs a channel remembers. Beyond it the older half is
// forgotten: deliveries that have been in hand for that long match no fault.
const rabbitRuns = 1 << 14

// delivered notes from which queue a delivery came.
func (ch *rabbitChannel) delivered(tag uint64, queue string) {
	if n := len(ch.deliveries); n > 0 && ch.deliveries[n-1].queue == queue {
		return
	}
	if len(ch.deliveries) == rabbitRuns {
		ch.deliveries = append(ch.deliveries[:0], ch.deliveries[rabbitRuns/2:]...)
	}
	ch.deliveries = append(ch.deliveries, rabbitRun{tag, queue})
}

// source returns the queue of a delivery; 0 stands for the latest one.
func (ch *rabbitChannel) source(tag uint64) (queue string, ok bool) {
	runs := ch.deliveries
	n := len(runs)
	if tag != 0 {
		n = sort.Search(len(runs), func(i int) bool { return runs[i].from > tag })
	}
	if n == 0 {
		return "", false
	}
	return runs[n-1].queue, true
}
