package report

import "slices"

// A history is drawn as a sequence diagram by the page's script (sequence.js): a
// lane for each party, time downwards, an arrow for what passes between two parties,
// a dot for what one does alone, and a band across all lanes for faults and the
// clock. Which lanes an event touches is decided here.

// path says between whom something of a kind passes, whoever reports it: a
// probe may write a receipt down as the producer's or as the broker's.
var path = map[string][2]Actor{
	"publish":  {Producer, Broker},
	"receipt":  {Broker, Producer},
	"receive":  {Consumer, Broker},
	"delivery": {Broker, Consumer},
	"settle":   {Consumer, Broker},
	"ack":      {Consumer, Broker},
	"nack":     {Consumer, Broker},
	"extend":   {Consumer, Broker},
	"outcome":  {Broker, Consumer},
	"effect":   {Consumer, Store},
}

var lanes = []Actor{Producer, Broker, Consumer, Store}

// endsOf returns the lanes an event touches; none means all of them.
func endsOf(e Event) []Actor {
	if e.Actor == Fault || e.Actor == Clock {
		return nil
	}
	if p, ok := path[e.Kind]; ok {
		return p[:]
	}
	if slices.Contains(lanes, e.Actor) {
		return []Actor{e.Actor}
	}
	return nil
}
