package rabbitmq_test

import (
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// scripts are the scenarios of TestTranscripts, by the names of their files.
var scripts = map[string]func(s *script){
	"errors":           scriptErrors,
	"equivalence":      scriptEquivalence,
	"arguments":        scriptArguments,
	"bad-publishes":    scriptBadPublishes,
	"returns":          scriptReturns,
	"requeue-classic":  func(s *script) { scriptRequeue(s, "classic") },
	"requeue-quorum":   func(s *script) { scriptRequeue(s, "quorum") },
	"limit-quorum":     scriptLimit,
	"dead-letters":     func(s *script) { scriptDeadLetters(s, "classic") },
	"dead-letters-qq":  func(s *script) { scriptDeadLetters(s, "quorum") },
	"cycles":           scriptCycles,
	"overflow-classic": func(s *script) { scriptOverflow(s, "classic") },
	"overflow-quorum":  func(s *script) { scriptOverflow(s, "quorum") },
	"ttl":              scriptTTL,
	"topics":           scriptTopics,
	"headers":          scriptHeaders,
	"exchanges":        scriptExchanges,
	"cc":               scriptCC,
	"single-active":    func(s *script) { scriptSingleActive(s, "classic") },
	"single-active-qq": func(s *script) { scriptSingleActive(s, "quorum") },
	"exclusive":        scriptExclusive,
	"priorities":       scriptPriorities,
	"tx":               scriptTx,
	"recover":          scriptRecover,
	"qos":              scriptQos,
	"deletes":          scriptDeletes,
}

func scriptErrors(s *script) {
	do := func(what string, f func(ch *amqp.Channel) error) { s.err(what, f(s.channel())) }
	do("declare amq.x", func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare("amq.x", "direct", true, false, false, false, nil)
	})
	do("declare the default exchange", func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare("", "direct", true, false, false, false, nil)
	})
	do("passive declare of no exchange", func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive("no-such", "direct", true, false, false, false, nil)
	})
	do("declare an unknown type", func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare("x-unknown", "nonsense", true, false, false, false, nil)
	})
	do("delete amq.direct", func(ch *amqp.Channel) error { return ch.ExchangeDelete("amq.direct", false, false) })
	do("delete the default exchange", func(ch *amqp.Channel) error { return ch.ExchangeDelete("", false, false) })
	do("delete no exchange", func(ch *amqp.Channel) error { return ch.ExchangeDelete("no-such", false, false) })
	do("declare queue amq.q", func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare("amq.q", true, false, false, false, nil)
		return err
	})
	do("passive declare of no queue", func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive("no-such", true, false, false, false, nil)
		return err
	})
	do("get from no queue", func(ch *amqp.Channel) error { _, _, err := ch.Get("no-such", false); return err })
	do("consume from no queue", func(ch *amqp.Channel) error {
		_, err := ch.Consume("no-such", "", false, false, false, false, nil)
		return err
	})
	do("purge no queue", func(ch *amqp.Channel) error { _, err := ch.QueuePurge("no-such", false); return err })
	do("delete no queue", func(ch *amqp.Channel) error { _, err := ch.QueueDelete("no-such", false, false, false); return err })
	do("get from the last queue", func(ch *amqp.Channel) error { _, _, err := ch.Get("", false); return err })
	do("bind no queue", func(ch *amqp.Channel) error { return ch.QueueBind("no-such", "k", "amq.direct", false, nil) })
	s.declare(s.channel(), "errors-q", nil)
	do("bind to no exchange", func(ch *amqp.Channel) error { return ch.QueueBind("errors-q", "k", "no-such", false, nil) })
	do("bind to the default exchange", func(ch *amqp.Channel) error { return ch.QueueBind("errors-q", "k", "", false, nil) })
	do("unbind what isn't bound", func(ch *amqp.Channel) error { return ch.QueueUnbind("errors-q", "k", "amq.direct", nil) })
	do("unbind from no exchange", func(ch *amqp.Channel) error { return ch.QueueUnbind("errors-q", "k", "no-such", nil) })
	do("bind exchange to no exchange", func(ch *amqp.Channel) error {
		return ch.ExchangeBind("amq.topic", "k", "no-such", false, nil)
	})
	do("global prefetch", func(ch *amqp.Channel) error { return ch.Qos(0, 10, false) })
	ch := s.channel()
	s.closing(ch, func() { _ = ch.Ack(7, false) })
	ch = s.channel()
	s.closing(ch, func() { _ = ch.Nack(7, true, true) })
	ch = s.channel()
	s.closing(ch, func() { _ = ch.Reject(7, true) })
	ch = s.channel()
	s.err("ack all of nothing", ch.Ack(0, true))
	_, err := ch.QueueDeclarePassive("errors-q", true, false, false, false, nil)
	s.err("channel still open", err)
	do("tx after confirm", func(ch *amqp.Channel) error { _ = ch.Confirm(false); return ch.Tx() })
	do("confirm after tx", func(ch *amqp.Channel) error { _ = ch.Tx(); return ch.Confirm(false) })
	do("commit without tx", func(ch *amqp.Channel) error { return ch.TxCommit() })
	do("rollback without tx", func(ch *amqp.Channel) error { return ch.TxRollback() })
	ch = s.channel()
	_, err = ch.Consume("errors-q", "tag", false, false, false, false, nil)
	s.err("consume", err)
	s.closing(ch, func() { _, _ = ch.Consume("errors-q", "tag", false, false, false, false, nil) })
	do("cancel of no consumer", func(ch *amqp.Channel) error { return ch.Cancel("no-such", false) })
	_, err = amqp.Dial(s.url + "no-vhost")
	s.err("dial no vhost", err)
	_, err = amqp.DialConfig(s.url, amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "guest", Password: "wrong"}}})
	s.err("dial with a wrong password", err)
}

func scriptEquivalence(s *script) {
	s.declare(s.channel(), "eq-q", amqp.Table{"x-max-length": 10, "x-message-ttl": int64(60000)})
	declare := func(what string, durable, autoDelete, exclusive bool, args amqp.Table) {
		_, err := s.channel().QueueDeclare("eq-q", durable, autoDelete, exclusive, false, args)
		s.err(what, err)
	}
	declare("same, other integers", true, false, false, amqp.Table{"x-max-length": int16(10), "x-message-ttl": int32(60000)})
	declare("same, classic", true, false, false, amqp.Table{"x-max-length": 10, "x-message-ttl": 60000, "x-queue-type": "classic"})
	declare("not durable", false, false, false, amqp.Table{"x-max-length": 10, "x-message-ttl": 60000})
	declare("auto-delete", true, true, false, amqp.Table{"x-max-length": 10, "x-message-ttl": 60000})
	declare("exclusive", true, false, true, amqp.Table{"x-max-length": 10, "x-message-ttl": 60000})
	declare("other value", true, false, false, amqp.Table{"x-max-length": 11, "x-message-ttl": 60000})
	declare("missing value", true, false, false, amqp.Table{"x-max-length": 10})
	declare("more", true, false, false, amqp.Table{"x-max-length": 10, "x-message-ttl": 60000, "x-dead-letter-exchange": "x"})
	declare("quorum", true, false, false, amqp.Table{"x-max-length": 10, "x-message-ttl": 60000, "x-queue-type": "quorum"})
	declare("unknown argument", true, false, false, amqp.Table{"x-max-length": 10, "x-message-ttl": 60000, "my-own": "x"})
	s.declare(s.channel(), "eq-qq", amqp.Table{"x-queue-type": "quorum"})
	_, err := s.channel().QueueDeclare("eq-qq", true, false, false, false, nil)
	s.err("quorum as classic", err)

	_ = s.channel().ExchangeDelete("eq-x", false, false)
	s.err("exchange", s.channel().ExchangeDeclare("eq-x", "direct", true, false, false, false, nil))
	s.err("same", s.channel().ExchangeDeclare("eq-x", "direct", true, false, false, false, nil))
	s.err("other type", s.channel().ExchangeDeclare("eq-x", "fanout", true, false, false, false, nil))
	s.err("not durable", s.channel().ExchangeDeclare("eq-x", "direct", false, false, false, false, nil))
	s.err("auto-delete", s.channel().ExchangeDeclare("eq-x", "direct", true, true, false, false, nil))
	s.err("internal", s.channel().ExchangeDeclare("eq-x", "direct", true, false, true, false, nil))
	s.err("alternate", s.channel().ExchangeDeclare("eq-x", "direct", true, false, false, false, amqp.Table{"alternate-exchange": "amq.fanout"}))
	s.err("amq.direct as it is", s.channel().ExchangeDeclare("amq.direct", "direct", true, false, false, false, nil))
	s.err("delete", s.channel().ExchangeDelete("eq-x", false, false))
}

func scriptArguments(s *script) {
	declare := func(what string, durable, autoDelete, exclusive bool, args amqp.Table) {
		_, err := s.channel().QueueDeclare("args-q", durable, autoDelete, exclusive, false, args)
		s.err(what, err)
		if err == nil {
			_, err = s.channel().QueueDelete("args-q", false, false, false)
			s.err("delete", err)
		}
	}
	arg := func(name string, v any) {
		declare(fmt.Sprintf("%s=%v", name, v), true, false, false, amqp.Table{name: v})
	}
	arg("x-queue-type", "nonsense")
	arg("x-message-ttl", "10")
	arg("x-message-ttl", -1)
	arg("x-message-ttl", 0)
	arg("x-expires", 0)
	arg("x-expires", -1)
	arg("x-max-length", -1)
	arg("x-max-length", "x")
	arg("x-max-length-bytes", true)
	arg("x-max-priority", 256)
	arg("x-max-priority", -1)
	arg("x-overflow", "nonsense")
	arg("x-dead-letter-exchange", 1)
	arg("x-dead-letter-routing-key", "k")
	arg("x-single-active-consumer", "yes")
	arg("x-delivery-limit", 3)
	arg("x-max-age", "1D")
	q := func(t amqp.Table) amqp.Table { t["x-queue-type"] = "quorum"; return t }
	declare("quorum", true, false, false, q(amqp.Table{}))
	declare("quorum not durable", false, false, false, q(amqp.Table{}))
	declare("quorum exclusive", true, false, true, q(amqp.Table{}))
	declare("quorum auto-delete", true, true, false, q(amqp.Table{}))
	declare("quorum priority", true, false, false, q(amqp.Table{"x-max-priority": 5}))
	declare("quorum reject-publish-dlx", true, false, false, q(amqp.Table{"x-overflow": "reject-publish-dlx"}))
	declare("quorum reject-publish", true, false, false, q(amqp.Table{"x-overflow": "reject-publish"}))
	_, err := s.channel().QueueDeclare("", true, false, false, false, q(amqp.Table{}))
	s.err("quorum without a name", err)
	s.declare(s.channel(), "args-qq", q(amqp.Table{}))
	_, err = s.channel().QueueDelete("args-qq", true, false, false)
	s.err("quorum delete if unused", err)
	_, err = s.channel().QueueDelete("args-qq", false, true, false)
	s.err("quorum delete if empty", err)
	ch := s.channel()
	_ = ch.Qos(1, 0, true)
	_, err = ch.Consume("args-qq", "", false, false, false, false, nil)
	s.err("quorum with global qos", err)
	_, err = s.channel().Consume("args-qq", "", false, false, false, false, amqp.Table{"x-priority": "high"})
	s.err("priority of a wrong type", err)
}

func scriptBadPublishes(s *script) {
	s.declare(s.channel(), "bad-q", nil)
	s.printf("no exchange: %s", s.send("no-such", "k", amqp.Publishing{}))
	s.printf("trace exchange: %s", s.send("amq.rabbitmq.trace", "k", amqp.Publishing{}))
	for _, e := range []string{"x", "", "-1", "10x", "0", "99999999999999"} {
		s.printf("expiration %q: %s", e, s.send("", "bad-q", amqp.Publishing{Expiration: e}))
	}
	s.printf("own user ID: %s", s.send("", "bad-q", amqp.Publishing{UserId: "guest"}))
	s.printf("other user ID: %s", s.send("", "bad-q", amqp.Publishing{UserId: "other"}))
	s.printf("CC of a wrong type: %s", s.send("", "bad-q", amqp.Publishing{Headers: amqp.Table{"CC": "x"}}))
	ch := s.channel()
	s.closing(ch, func() { _ = ch.Publish("", "bad-q", false, true, amqp.Publishing{}) })
}

func scriptReturns(s *script) {
	s.printf("mandatory to nowhere: %s", s.send("", "no-such-queue", amqp.Publishing{Body: []byte("x")}))
	s.printf("mandatory to amq.fanout: %s", s.send("amq.fanout", "", amqp.Publishing{Body: []byte("x")}))
	ch := s.channel()
	_ = ch.Confirm(false)
	c, _ := ch.PublishWithDeferredConfirm("", "no-such-queue", false, false, amqp.Publishing{})
	s.printf("not mandatory: %v", c.Wait())
}

func scriptRequeue(s *script, kind string) {
	name := "requeue-" + kind
	s.declare(s.channel(), name, amqp.Table{"x-queue-type": kind})
	s.publish(name, "1", "2", "3", "4", "5")
	ch := s.channel()
	_ = ch.Qos(2, 0, false)
	ds, err := ch.Consume(name, "c", false, false, false, false, nil)
	s.err("consume", err)
	one, two := s.next("c", ds), s.next("c", ds)
	_ = one.Nack(false, true)
	again := s.next("c", ds)
	_ = two.Ack(false)
	other := s.next("c", ds)
	_ = again.Ack(false)
	_ = other.Ack(false)
	three, four := s.next("c", ds), s.next("c", ds)
	_ = four.Ack(false)
	_ = three.Ack(false)
	s.err("close", ch.Close())
	s.publish(name, "6")
	ch = s.channel()
	d := s.get(ch, name)
	_ = d.Reject(true)
	d = s.get(ch, name)
	_ = d.Nack(false, true)
	d = s.get(ch, name)
	_ = d.Ack(false)
	s.err("close", ch.Close())
}

func scriptLimit(s *script) {
	s.declare(s.channel(), "limit-dead", nil)
	s.declare(s.channel(), "limit", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "limit-dead"})
	s.publish("limit", "a")
	ch := s.channel()
	for range 3 {
		d := s.get(ch, "limit")
		_ = d.Nack(false, true)
	}
	d := s.get(ch, "limit-dead")
	_ = d.Ack(false)
	s.err("close", ch.Close())
}

func scriptDeadLetters(s *script, kind string) {
	dead, name := "dead-"+kind, "dying-"+kind
	s.declare(s.channel(), dead, nil)
	s.declare(s.channel(), name, amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead, "x-max-length": 2})
	ch := s.channel()
	s.printf("publish: %s", s.send("", name, amqp.Publishing{Body: []byte("rejected"), DeliveryMode: 2, Headers: amqp.Table{"own": "x"}}))
	d := s.get(ch, name)
	_ = d.Reject(false)
	d = s.get(ch, dead)
	_ = d.Ack(false)
	s.printf("publish: %s", s.send("", name, amqp.Publishing{Body: []byte("expired"), DeliveryMode: 2, Expiration: "1"}))
	d = s.get(ch, dead)
	s.printf("again: %s", s.send("", name, amqp.Publishing{Body: []byte("twice"), DeliveryMode: 2, Expiration: "1"}))
	_ = d.Ack(false)
	d = s.get(ch, dead)
	_ = d.Ack(false)
	s.publish(name, "1", "2", "3")
	d = s.get(ch, dead)
	_ = d.Ack(false)
	d = s.get(ch, name)
	_ = d.Nack(false, false)
	d = s.get(ch, dead)
	_ = d.Ack(false)
	s.err("close", ch.Close())
}

func scriptCycles(s *script) {
	s.declare(s.channel(), "cycle-b", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "cycle-a", "x-message-ttl": 1})
	s.declare(s.channel(), "cycle-a", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "cycle-b"})
	s.publish("cycle-a", "round")
	ch := s.channel()
	for range 2 {
		d := s.get(ch, "cycle-a")
		_ = d.Reject(false)
	}
	d := s.get(ch, "cycle-a")
	_ = d.Ack(false)
	s.declare(s.channel(), "cycle-self", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "cycle-self", "x-message-ttl": 1})
	s.publish("cycle-self", "gone")
	time.Sleep(50 * time.Millisecond) // the real broker's clock can't be moved
	q, err := ch.QueueDeclarePassive("cycle-self", true, false, false, false, nil)
	s.err(fmt.Sprintf("%d messages", q.Messages), err)
}
