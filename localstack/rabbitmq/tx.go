package rabbitmq

import "github.com/onceline/onceline/localstack/rabbitmq/amqp"

// transaction is what a channel has done and not committed yet.
type transaction struct {
	published []outgoing
	settled   []settlements
}

type outgoing struct {
	m         *message
	x         *exchange
	mandatory bool
}

type settlements struct {
	how  settlement
	list []pending
}

func (ch *channel) txMethod(m amqp.Method) *exception {
	if m == amqp.TxSelect {
		if ch.confirms.on {
			return refuse(amqp.PreconditionFailed, "cannot switch from confirm to tx mode")
		}
		if ch.tx == nil {
			ch.tx = &transaction{}
		}
		ch.reply(amqp.TxSelectOk)
		return nil
	}
	tx := ch.tx
	if tx == nil {
		return refuse(amqp.PreconditionFailed, "channel is not transactional")
	}
	if m == amqp.TxRollback {
		ch.rollback()
		ch.reply(amqp.TxRollbackOk)
		return nil
	}
	*ch.tx, tx = transaction{}, &transaction{published: tx.published, settled: tx.settled}
	ok := true
	for _, p := range tx.published {
		ok = ch.route(p.m, p.x, p.mandatory, true) && ok
	}
	for _, s := range tx.settled {
		ch.apply(s.list, s.how)
	}
	if !ok {
		return refuse(amqp.PreconditionFailed, "partial tx completion")
	}
	ch.reply(amqp.TxCommitOk)
	return nil
}

// rollback forgets what was published, and makes the deliveries that were settled
// wait for their settlement again; they are not redelivered.
func (ch *channel) rollback() {
	for _, s := range ch.tx.settled {
		ch.unacked.put(s.list)
	}
	*ch.tx = transaction{}
}
