package rabbitmq

import (
	"encoding/binary"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// confirms are what a channel has to tell its publisher. They are collected over
// a batch of input and sent as one where they can be (RMQ-F-07).
type confirms struct {
	on    bool
	next  uint64 // the number of the next message
	first uint64 // of the run that has been accepted or refused and not said; 0 is none
	last  uint64
	nack  bool // what the run is
	holes bool // some message before was never confirmed: no confirm may cover it
}

// confirm says of a message that all its queues have it, or that one refused it
// (RMQ-F-03).
func (ch *channel) confirm(seq uint64, ok bool) {
	f := &ch.confirms
	if f.first != 0 && (f.nack == ok || f.last+1 != seq) {
		ch.flushConfirms()
	}
	if f.first == 0 {
		f.first, f.nack = seq, !ok
		ch.c.confirming = append(ch.c.confirming, ch)
	}
	f.last = seq
}

// withhold leaves a message without confirm for ever.
func (f *confirms) withhold(seq uint64) {
	if seq != 0 {
		f.holes = true
	}
}

// flushConfirms sends what has been collected.
func (ch *channel) flushConfirms() {
	f := &ch.confirms
	if f.first == 0 {
		return
	}
	m := amqp.BasicAck
	if f.nack {
		m = amqp.BasicNack
	}
	first := f.last
	if f.holes { // each by itself
		first = f.first
	}
	for seq := first; seq <= f.last; seq++ {
		multiple := !f.holes && f.last > f.first
		ch.send(m, func(b []byte) []byte {
			return appendBool(binary.BigEndian.AppendUint64(b, seq), multiple)
		})
	}
	f.first = 0
}

// flushConfirms sends what the connection's channels have collected.
func (c *conn) flushConfirms() {
	for i, ch := range c.confirming {
		if !ch.closed {
			ch.flushConfirms()
		}
		c.confirming[i] = nil
	}
	c.confirming = c.confirming[:0]
}

func (ch *channel) confirmSelect(d *amqp.Decoder) *exception {
	noWait := d.Bit()
	if d.Err() != nil {
		return nil
	}
	if ch.tx != nil {
		return refuse(amqp.PreconditionFailed, "cannot switch from tx to confirm mode")
	}
	ch.confirms.on = true
	if !noWait {
		ch.reply(amqp.ConfirmSelectOk)
	}
	return nil
}
