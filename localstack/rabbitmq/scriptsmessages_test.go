package rabbitmq_test

import (
	"bytes"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func scriptOverflow(s *script, kind string) {
	head, reject := "head-"+kind, "reject-"+kind
	s.declare(s.channel(), head, amqp.Table{"x-queue-type": kind, "x-max-length": 2})
	s.publish(head, "1", "2", "3")
	ch := s.channel()
	for range 2 {
		d := s.get(ch, head)
		_ = d.Ack(false)
	}
	s.declare(s.channel(), reject, amqp.Table{"x-queue-type": kind, "x-max-length": 2, "x-overflow": "reject-publish"})
	s.publish(reject, "1", "2")
	if kind == "classic" { // a quorum queue takes as many more as come before it has said so
		s.publish(reject, "3")
		d := s.get(ch, reject)
		s.publish(reject, "4", "5")
		_ = d.Nack(false, true)
		for range 3 {
			d := s.get(ch, reject)
			_ = d.Ack(false)
		}
	}
	if kind == "classic" {
		s.declare(s.channel(), "bytes", amqp.Table{"x-max-length-bytes": 10, "x-overflow": "reject-publish"})
		s.publish("bytes", "12345", "123456", "12345", "1")
		s.declare(s.channel(), "dlx-dead", nil)
		s.declare(s.channel(), "dlx", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlx-dead"})
		s.publish("dlx", "a", "b")
		d := s.get(ch, "dlx-dead")
		_ = d.Ack(false)
	}
}

func scriptTTL(s *script) {
	s.declare(s.channel(), "ttl", amqp.Table{"x-message-ttl": 60000})
	s.printf("a: %s", s.send("", "ttl", amqp.Publishing{Body: []byte("long"), DeliveryMode: 2}))
	s.printf("b: %s", s.send("", "ttl", amqp.Publishing{Body: []byte("short behind"), DeliveryMode: 2, Expiration: "1"}))
	time.Sleep(30 * time.Millisecond)
	ch := s.channel()
	q, err := ch.QueueDeclarePassive("ttl", true, false, false, false, nil)
	s.err(fmt.Sprintf("%d messages", q.Messages), err)
	d := s.get(ch, "ttl")
	q, err = ch.QueueDeclarePassive("ttl", true, false, false, false, nil)
	s.err(fmt.Sprintf("%d messages", q.Messages), err)
	_ = d.Ack(false)
	s.declare(s.channel(), "ttl-0", amqp.Table{"x-message-ttl": 0})
	s.publish("ttl-0", "nobody")
	q, err = ch.QueueDeclarePassive("ttl-0", true, false, false, false, nil)
	s.err(fmt.Sprintf("%d messages", q.Messages), err)
	ds, _ := ch.Consume("ttl-0", "", true, false, false, false, nil)
	s.publish("ttl-0", "somebody")
	s.next("consumer", ds)
}

func scriptTopics(s *script) {
	ch := s.channel()
	patterns := []string{"a.b", "a.*", "*.b", "#", "a.#", "#.b", "a.#.b", "*", "*.*", "#.#", "*.#.*", ""}
	for i, p := range patterns {
		q := fmt.Sprintf("topic-%d", i)
		s.declare(ch, q, nil)
		s.err("bind "+p, ch.QueueBind(q, p, "amq.topic", false, nil))
	}
	for _, key := range []string{"a.b", "a", "", "a.b.c", "a.x.b", "b", ".", "a..b", "*.b"} {
		_ = s.send("amq.topic", key, amqp.Publishing{Body: []byte(key)})
		var hits []string
		for i, p := range patterns {
			if n, _ := ch.QueuePurge(fmt.Sprintf("topic-%d", i), false); n > 0 {
				hits = append(hits, fmt.Sprintf("%q", p))
			}
		}
		s.printf("%q: %v", key, hits)
	}
}

func scriptHeaders(s *script) {
	ch := s.channel()
	tables := []amqp.Table{
		{"x-match": "all", "a": "1", "b": 2},
		{"x-match": "any", "a": "1", "b": 2},
		{"a": "1"},
		{"x-match": "all"},
		{"x-match": "any"},
		{"a": nil},
		{"x-match": "all", "x-own": "1"},
	}
	for i, t := range tables {
		q := fmt.Sprintf("headers-%d", i)
		s.declare(ch, q, nil)
		s.err("bind "+value(t), ch.QueueBind(q, "", "amq.headers", false, t))
	}
	for _, h := range []amqp.Table{
		{}, {"a": "1"}, {"a": "2"}, {"a": "1", "b": 2}, {"a": "1", "b": int64(2)}, {"b": int16(2)}, {"a": 1}, {"x-own": "1"},
	} {
		_ = s.send("amq.headers", "", amqp.Publishing{Headers: h})
		var hits []int
		for i := range tables {
			if n, _ := ch.QueuePurge(fmt.Sprintf("headers-%d", i), false); n > 0 {
				hits = append(hits, i)
			}
		}
		s.printf("%s: %v", value(h), hits)
	}
	s.err("bind with a wrong x-match", s.channel().QueueBind("headers-0", "", "amq.headers", false, amqp.Table{"x-match": "some"}))
	s.err("bind with a wrong x-match type", s.channel().QueueBind("headers-0", "", "amq.headers", false, amqp.Table{"x-match": 1}))
}

func scriptExchanges(s *script) {
	ch := s.channel()
	for _, x := range []string{"ex-a", "ex-b", "ex-auto", "ex-alt"} {
		_ = ch.ExchangeDelete(x, false, false)
	}
	s.declare(ch, "ex-q", nil)
	s.declare(ch, "ex-q2", nil)
	s.err("alternate", ch.ExchangeDeclare("ex-alt", "fanout", true, false, false, false, nil))
	s.err("declare", ch.ExchangeDeclare("ex-a", "direct", true, false, false, false, amqp.Table{"alternate-exchange": "ex-alt"}))
	s.err("declare", ch.ExchangeDeclare("ex-b", "topic", true, false, false, false, nil))
	s.err("bind", ch.ExchangeBind("ex-b", "k", "ex-a", false, nil))
	s.err("bind", ch.ExchangeBind("ex-a", "#", "ex-b", false, nil)) // a circle
	s.err("bind", ch.QueueBind("ex-q", "k", "ex-b", false, nil))
	s.err("bind", ch.QueueBind("ex-q", "k", "ex-a", false, nil))
	s.err("bind", ch.QueueBind("ex-q2", "", "ex-alt", false, nil))
	s.printf("by both ways: %s", s.send("ex-a", "k", amqp.Publishing{Body: []byte("k")}))
	s.printf("to the alternate: %s", s.send("ex-a", "other", amqp.Publishing{Body: []byte("other")}))
	for _, q := range []string{"ex-q", "ex-q2"} {
		i, err := ch.QueueDeclarePassive(q, true, false, false, false, nil)
		s.err(fmt.Sprintf("%s has %d", q, i.Messages), err)
	}
	s.err("delete if unused", s.channel().ExchangeDelete("ex-a", true, false))
	s.err("auto", ch.ExchangeDeclare("ex-auto", "direct", true, true, false, false, nil))
	s.err("bind", ch.QueueBind("ex-q", "k", "ex-auto", false, nil))
	s.err("unbind", ch.QueueUnbind("ex-q", "k", "ex-auto", nil))
	s.err("auto is gone", s.channel().ExchangeDeclarePassive("ex-auto", "direct", true, true, false, false, nil))
	for _, x := range []string{"ex-a", "ex-b", "ex-alt"} {
		s.err("delete", ch.ExchangeDelete(x, false, false))
	}
}

func scriptCC(s *script) {
	ch := s.channel()
	for _, q := range []string{"cc-1", "cc-2", "cc-3"} {
		s.declare(ch, q, nil)
	}
	s.printf("publish: %s", s.send("", "cc-1", amqp.Publishing{Body: []byte("x"), Headers: amqp.Table{
		"CC": []any{"cc-2"}, "BCC": []any{"cc-3", "cc-1"}, "own": "1",
	}}))
	for _, q := range []string{"cc-1", "cc-2", "cc-3"} {
		d := s.get(ch, q)
		_ = d.Ack(false)
	}
}

func scriptSingleActive(s *script, kind string) {
	name := "sac-" + kind
	s.declare(s.channel(), name, amqp.Table{"x-queue-type": kind, "x-single-active-consumer": true})
	a, b := s.channel(), s.channel()
	_ = a.Qos(1, 0, false)
	first, err := a.Consume(name, "first", false, false, false, false, nil)
	s.err("consume", err)
	second, err := b.Consume(name, "second", false, false, false, false, nil)
	s.err("consume", err)
	s.publish(name, "1", "2")
	one := s.next("first", first)
	s.err("cancel", a.Cancel("first", false))
	select {
	case d := <-second:
		s.printf("second: %s while the first holds its delivery", delivery(d))
	case <-time.After(100 * time.Millisecond):
		s.printf("second: nothing while the first holds its delivery")
	}
	_ = one.Nack(false, true)
	s.next("second", second)
	_, _, err = s.channel().Get(name, false)
	s.err("get", err)
	_, err = s.channel().Consume(name, "x", false, true, false, false, nil)
	s.err("exclusive consumer", err)
}

func scriptExclusive(s *script) {
	mine := s.channel()
	_, err := mine.QueueDeclare("exclusive-q", false, false, true, false, nil)
	s.err("declare", err)
	_, err = mine.QueueDeclare("exclusive-q", true, false, true, false, nil)
	s.err("declare as durable", err)
	own := s.conn
	s.connect()
	_, err = s.channel().QueueDeclare("exclusive-q", false, false, true, false, nil)
	s.err("declare on another connection", err)
	_, err = s.channel().QueueDeclarePassive("exclusive-q", false, false, true, false, nil)
	s.err("passive declare", err)
	_, err = s.channel().Consume("exclusive-q", "", false, false, false, false, nil)
	s.err("consume", err)
	s.err("bind", s.channel().QueueBind("exclusive-q", "k", "amq.direct", false, nil))
	_, err = s.channel().QueueDelete("exclusive-q", false, false, false)
	s.err("delete", err)
	s.printf("publish: %s", s.send("", "exclusive-q", amqp.Publishing{Body: []byte("x")}))
	_ = own.Close()
	s.printf("after its connection: %s", s.send("", "exclusive-q", amqp.Publishing{Body: []byte("x")}))

	s.declare(s.channel(), "consumers-q", nil)
	a := s.channel()
	_, err = a.Consume("consumers-q", "a", false, true, false, false, nil)
	s.err("exclusive consumer", err)
	_, err = s.channel().Consume("consumers-q", "b", false, false, false, false, nil)
	s.err("another", err)
	s.err("cancel", a.Cancel("a", false))
	_, err = a.Consume("consumers-q", "c", false, false, false, false, nil)
	s.err("consume", err)
	_, err = s.channel().Consume("consumers-q", "d", false, true, false, false, nil)
	s.err("exclusive beside another", err)
}

func scriptPriorities(s *script) {
	s.declare(s.channel(), "prio", amqp.Table{"x-max-priority": 5})
	for _, p := range []uint8{0, 3, 1, 9, 5, 3} {
		s.printf("priority %d: %s", p, s.send("", "prio", amqp.Publishing{Body: fmt.Appendf(nil, "p%d", p), Priority: p}))
	}
	ch := s.channel()
	first := s.get(ch, "prio")
	_ = first.Nack(false, true)
	for range 6 {
		d := s.get(ch, "prio")
		_ = d.Ack(false)
	}
	s.declare(s.channel(), "consumers-prio", nil)
	low, high := s.channel(), s.channel()
	_ = low.Qos(1, 0, false)
	_ = high.Qos(1, 0, false)
	l, err := low.Consume("consumers-prio", "low", false, false, false, false, amqp.Table{"x-priority": 1})
	s.err("consume", err)
	h, err := high.Consume("consumers-prio", "high", false, false, false, false, amqp.Table{"x-priority": 10})
	s.err("consume", err)
	s.publish("consumers-prio", "1", "2")
	s.next("high", h)
	s.next("low", l)
}

func scriptTx(s *script) {
	s.declare(s.channel(), "tx", nil)
	ch := s.channel()
	s.err("tx", ch.Tx())
	_ = ch.Publish("", "tx", false, false, amqp.Publishing{Body: []byte("1")})
	q, err := ch.QueueDeclarePassive("tx", true, false, false, false, nil)
	s.err(fmt.Sprintf("%d before", q.Messages), err)
	s.err("rollback", ch.TxRollback())
	_ = ch.Publish("", "tx", false, false, amqp.Publishing{Body: []byte("2")})
	s.err("commit", ch.TxCommit())
	d := s.get(ch, "tx")
	_ = d.Ack(false)
	s.err("rollback", ch.TxRollback())
	_ = d.Ack(false)
	s.err("commit", ch.TxCommit())
	q, err = ch.QueueDeclarePassive("tx", true, false, false, false, nil)
	s.err(fmt.Sprintf("%d after", q.Messages), err)
	s.publish("tx", "3")
	d = s.get(ch, "tx")
	_ = d.Nack(false, true)
	s.err("close", ch.Close())
	ch = s.channel()
	d = s.get(ch, "tx")
	_ = d.Ack(false)
	s.err("close", ch.Close())
}

func scriptRecover(s *script) {
	s.declare(s.channel(), "recover", nil)
	s.publish("recover", "1", "2", "3")
	ch := s.channel()
	ds, err := ch.Consume("recover", "c", false, false, false, false, nil)
	s.err("consume", err)
	for range 3 {
		s.next("c", ds)
	}
	//lint:ignore SA1019 the broker has it, whatever the client advises
	s.err("recover", ch.Recover(true))
	for range 3 {
		d := s.next("c", ds)
		_ = d.Ack(false)
	}
	other := s.channel()
	//lint:ignore SA1019 the broker has it, whatever the client advises
	s.closing(other, func() { _ = other.Recover(false) })
}

func scriptQos(s *script) {
	s.declare(s.channel(), "qos", nil)
	s.publish("qos", "1", "2", "3", "4", "5")
	ch := s.channel()
	s.err("qos", ch.Qos(2, 0, false))
	a, _ := ch.Consume("qos", "a", false, false, false, false, nil)
	one, _ := s.next("a", a), s.next("a", a)
	b, _ := ch.Consume("qos", "b", false, false, false, false, nil) // a window of its own
	s.next("b", b)
	s.next("b", b)
	s.err("qos of consumers to come", ch.Qos(1, 0, false))
	_ = one.Ack(false)
	s.next("a", a)
	s.err("close", ch.Close())
	ch = s.channel()
	s.err("global qos", ch.Qos(3, 0, true))
	a, _ = ch.Consume("qos", "a", false, false, false, false, nil)
	b, _ = ch.Consume("qos", "b", false, false, false, false, nil)
	for range 3 {
		s.next("a", a)
	}
	select {
	case d := <-b:
		s.printf("b: %s", d.Body)
	case <-time.After(50 * time.Millisecond):
		s.printf("b: nothing")
	}
	_ = ch.Ack(0, true)
	s.next("a or b", either(a, b))
}

func either(a, b <-chan amqp.Delivery) <-chan amqp.Delivery {
	out := make(chan amqp.Delivery, 1)
	go func() {
		select {
		case d := <-a:
			out <- d
		case d := <-b:
			out <- d
		}
	}()
	return out
}

func scriptDeletes(s *script) {
	ch := s.channel()
	s.declare(ch, "del", nil)
	s.publish("del", "1", "2")
	_, err := s.channel().QueueDelete("del", false, true, false)
	s.err("delete if empty", err)
	consumer := s.channel()
	ds, err := consumer.Consume("del", "c", false, false, false, false, nil)
	s.err("consume", err)
	cancels := consumer.NotifyCancel(make(chan string, 1))
	d := s.next("c", ds)
	s.next("c", ds)
	_, err = s.channel().QueueDelete("del", true, false, false)
	s.err("delete if unused", err)
	n, err := ch.QueueDelete("del", false, false, false)
	s.err(fmt.Sprintf("delete, %d messages", n), err)
	s.printf("cancelled: %s", <-cancels)
	s.err("ack after the delete", d.Ack(false))
	_, err = consumer.QueueDeclare("del-auto", false, true, false, false, nil)
	s.err("the channel is open; declare auto-delete", err)
	ds, err = consumer.Consume("del-auto", "c2", false, false, false, false, nil)
	s.err("consume", err)
	s.err("cancel", consumer.Cancel("c2", false))
	for range ds {
		s.printf("a delivery from nowhere")
	}
	_, err = s.channel().QueueDeclarePassive("del-auto", false, true, false, false, nil)
	s.err("auto-delete is gone", err)
	big := bytes.Repeat([]byte("x"), 300_000)
	s.declare(ch, "big", nil)
	s.printf("big: %s", s.send("", "big", amqp.Publishing{Body: big}))
	got, _, err := ch.Get("big", true)
	s.err(fmt.Sprintf("got %v", bytes.Equal(got.Body, big)), err)
}
