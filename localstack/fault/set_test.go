package fault_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/internal/bubbletest"
	"github.com/onceline/onceline/localstack/fault"
)

func is(name string) func(string) bool { return func(match string) bool { return match == name } }

func TestStrike(t *testing.T) {
	const (
		publish = "SendMessage"
		receive = "ReceiveMessage"
		beat    = "Heartbeat"
	)
	for _, c := range []struct {
		name    string
		f       fault.Fault
		ops     fault.Ops
		api     string
		entity  string
		strike  bool
		handout bool
	}{
		{"of its class", fault.Fault{Op: fault.Publish, Kind: fault.Cut}, fault.Publish.Ops(), publish, "q", true, false},
		{"of another class", fault.Fault{Op: fault.Settle, Kind: fault.Cut}, fault.Publish.Ops(), publish, "q", false, false},
		{"any class", fault.Fault{Kind: fault.Cut}, fault.Publish.Ops(), publish, "q", true, false},
		{"any class is not upkeep", fault.Fault{Kind: fault.Cut}, 0, beat, "q", false, false},
		{"upkeep by its name", fault.Fault{Kind: fault.Cut, API: beat}, 0, beat, "q", true, false},
		{"another name", fault.Fault{Kind: fault.Cut, API: beat}, fault.Publish.Ops(), publish, "q", false, false},
		{"name and class", fault.Fault{Op: fault.Settle, Kind: fault.Cut, API: publish}, fault.Publish.Ops(), publish, "q", false, false},
		{"its entity", fault.Fault{Op: fault.Publish, Kind: fault.Cut, Match: "q"}, fault.Publish.Ops(), publish, "q", true, false},
		{"another entity", fault.Fault{Op: fault.Publish, Kind: fault.Cut, Match: "r"}, fault.Publish.Ops(), publish, "q", false, false},
		{"one of two classes", fault.Fault{Op: fault.Settle, Kind: fault.Cut}, fault.Receive.Ops() | fault.Settle.Ops(), receive, "q", true, false},
		{"a handout is no request", fault.Fault{Op: fault.Receive, Kind: fault.LoseResponse}, fault.Receive.Ops(), receive, "q", false, true},
		{"a handout of any", fault.Fault{Kind: fault.LoseResponse}, fault.Receive.Ops(), receive, "q", false, true},
		{"a request to receive", fault.Fault{Op: fault.Receive, Kind: fault.LoseRequest}, fault.Receive.Ops(), receive, "q", true, false},
	} {
		var s fault.Set
		i := s.Inject(c.f, nil)
		if i.Err() != nil {
			t.Fatalf("%s: %v", c.name, i.Err())
		}
		if got := s.Strike(c.ops, c.api, is(c.entity)) == i; got != c.strike {
			t.Errorf("%s: a request is struck: %v, want %v", c.name, got, c.strike)
		}
		if got := s.StrikeHandout(c.api, is(c.entity)) == i; got != c.handout {
			t.Errorf("%s: a handout is struck: %v, want %v", c.name, got, c.handout)
		}
		if want := 0; (c.strike || c.handout) == (i.Hits() == want) {
			t.Errorf("%s: %d hits", c.name, i.Hits())
		}
	}
}

func TestTimesAndRemove(t *testing.T) {
	var s fault.Set
	twice := s.Inject(fault.Fault{Op: fault.Publish, Kind: fault.Cut, Times: 2}, nil)
	always := s.Inject(fault.Fault{Op: fault.Publish, Kind: fault.LoseRequest}, nil)
	for n, want := range []*fault.Injection{twice, twice, always, always} {
		if got := s.Strike(fault.Publish.Ops(), "", nil); got != want {
			t.Errorf("request %d: struck by %+v", n, got)
		}
	}
	always.Remove()
	always.Remove()
	if got := s.Strike(fault.Publish.Ops(), "", nil); got != nil || s.Armed() != nil {
		t.Errorf("struck by %+v after Remove", got)
	}
}

func TestRefused(t *testing.T) {
	var s fault.Set
	no := errors.New("no such API")
	for _, c := range []struct {
		f      fault.Fault
		refuse error
	}{
		{fault.Fault{Kind: fault.Cut}, no},
		{fault.Fault{}, nil},
		{fault.Fault{Op: 99, Kind: fault.Cut}, nil},
		{fault.Fault{Kind: fault.Delay}, nil},
		{fault.Fault{Kind: fault.Cut, Delay: time.Second}, nil},
		{fault.Fault{Kind: fault.Cut, Code: 1}, nil},
		{fault.Fault{Kind: fault.Cut, Times: -1}, nil},
	} {
		i := s.Inject(c.f, c.refuse)
		if i.Err() == nil || c.refuse != nil && !errors.Is(i.Err(), c.refuse) || s.Armed() != nil {
			t.Errorf("%+v is armed: %v", c.f, i.Err())
		}
		if err := i.WaitHit(t.Context()); !errors.Is(err, i.Err()) {
			t.Errorf("%+v: waiting for it: %v", c.f, err)
		}
		i.Remove()
	}
}

func TestWait(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		var s fault.Set
		i := s.Inject(fault.Fault{Op: fault.Publish, Kind: fault.LoseResponse}, nil)
		applied := make(chan error, 1)
		go func() { applied <- i.WaitApplied(t.Context()) }()
		synctest.Wait()
		s.Strike(fault.Publish.Ops(), "", nil).Answered(false)
		synctest.Wait()
		select {
		case err := <-applied:
			t.Fatalf("a refused request is taken for an applied one: %v", err)
		default:
		}
		s.Strike(fault.Publish.Ops(), "", nil).Answered(true)
		if err := <-applied; err != nil || i.Hits() != 2 || i.Applied() != 1 || i.Rejected() != 1 {
			t.Errorf("%v; %d hits, %d applied, %d rejected", err, i.Hits(), i.Applied(), i.Rejected())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		never := s.Inject(fault.Fault{Op: fault.Settle, Kind: fault.Cut}, nil)
		if err := never.WaitHit(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for what never comes: %v", err)
		}
	})
}
