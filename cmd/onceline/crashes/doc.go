// Package crashes proves the stores of package dedup by crashes: consumers are
// processes that are killed, frozen and cut off at each step of an effect, over
// embedded brokers that deliver again until a message is acked, and a ledger of effects
// is held against what each store promises. The same harness runs stores that are
// written in the usual wrong ways, and has to see what is wrong with them.
//
// A cell is a store, a broker, a point on the way of an effect and what happens there.
// Each cell publishes 200 messages in rounds. In each round one message's consumer is
// stopped at the point; the round is over when all of its messages have been acked.
package crashes

import "slices"

// Point is a place on the way of an effect, in the order in which a consumer comes by.
type Point string

// The points.
const (
	// BeforeClaim: the consumer has the message, and the store hasn't been asked.
	BeforeClaim Point = "before claim"
	// AfterClaim: marker, position, reservation or record is there, in an open
	// transaction where the store has one, and the effect isn't.
	AfterClaim Point = "after claim"
	// AfterEffect: the effect is there, in the transaction where there is one.
	AfterEffect Point = "after effect"
	// BeforeCommit: nothing but the commit is missing; of a lease and a call, nothing
	// but the record that it is done.
	BeforeCommit Point = "before commit"
	// InCommit: the commit has begun. In the first round it never leaves the process, in
	// the second it is on its way, in the third its answer is there and nobody has read
	// it. SQLite, which has no answers, is left to itself in the middle.
	InCommit Point = "in commit"
	// AfterCommit: the store has said that the effect stands, and the message isn't acked.
	AfterCommit Point = "after commit"
	// AfterAck: the broker has taken the ack.
	AfterAck Point = "after ack"
)

// Points returns all of them, in order.
func Points() []Point {
	return []Point{BeforeClaim, AfterClaim, AfterEffect, BeforeCommit, InCommit, AfterCommit, AfterAck}
}

// Disturbance is what happens to a consumer at a point.
type Disturbance string

// The disturbances.
const (
	// Kill is SIGKILL. Another consumer is started.
	Kill Disturbance = "kill"
	// Freeze is SIGSTOP, for longer than the message may be held: another consumer takes
	// over, and when it has done so the first goes on. In each second round the other is
	// killed before its ack after that, so that a third comes.
	Freeze Disturbance = "freeze"
	// CutStore ends the consumer's connections to the store by a reset.
	CutStore Disturbance = "cut-store"
	// CutBroker ends its connections to the broker.
	CutBroker Disturbance = "cut-broker"
	// Restart ends the database, by SIGKILL and, in each second round, cleanly, and starts
	// it again.
	Restart Disturbance = "restart"
)

// Disturbances returns all of them.
func Disturbances() []Disturbance {
	return []Disturbance{Kill, Freeze, CutStore, CutBroker, Restart}
}

// Cell is one run of the matrix.
type Cell struct {
	Store       string
	Broker      string
	Point       Point
	Disturbance Disturbance
}

func (c Cell) String() string {
	return c.Store + ", " + c.Broker + ", " + string(c.Disturbance) + " " + string(c.Point)
}

// Messages is how many each cell publishes, and rounds in how many parts.
const (
	Messages = 200
	rounds   = 3
)

// Cells returns the matrix of the stores and brokers of those names, those that don't
// apply included.
func Cells(stores, brokers []string) []Cell {
	var cells []Cell
	for _, s := range Stores() {
		if s.Wrong || !slices.Contains(stores, s.Name) {
			continue
		}
		for _, b := range brokers {
			for _, d := range Disturbances() {
				for _, p := range Points() {
					cells = append(cells, Cell{s.Name, b, p, d})
				}
			}
		}
	}
	return cells
}

// InTurn returns of cells that differ in their broker alone one, the brokers by turns:
// each store, point and disturbance is there once, and at each store each broker with
// each disturbance.
func InTurn(cells []Cell) []Cell {
	type place struct {
		store       string
		point       Point
		disturbance Disturbance
	}
	on := map[place][]Cell{}
	for _, c := range cells {
		if c.Applies() == "" {
			p := place{c.Store, c.Point, c.Disturbance}
			on[p] = append(on[p], c)
		}
	}
	stores := map[string]int{}
	for i, s := range Stores() {
		stores[s.Name] = i
	}
	return slices.DeleteFunc(slices.Clone(cells), func(c Cell) bool {
		same := on[place{c.Store, c.Point, c.Disturbance}]
		turn := stores[c.Store] + slices.Index(Points(), c.Point) + slices.Index(Disturbances(), c.Disturbance)
		return len(same) > 1 && same[turn%len(same)] != c
	})
}
