package broker

import (
	"context"
	"testing"
)

// nobody is a publisher that is never asked.
type nobody struct{ Publisher }

// Neighbours share a lane that hasn't taken off yet, each run has a lane of its
// own, and none waits behind a batch in the air while another lane is free.
func TestBatcherChoosesLanes(t *testing.T) {
	b := NewBatcher(nobody{}, 3, 10)
	count := func(n int) map[*lane]int {
		used := map[*lane]int{}
		for range n {
			used[b.laneOf("")]++
		}
		return used
	}
	fly := func(l *lane) {
		if !l.aloft.Swap(true) {
			b.aloft.Add(1)
		}
	}
	mine := b.laneOf("key")
	used := count(30)
	if len(used) != 3 {
		t.Fatalf("%d lanes for three runs of ten", len(used))
	}
	for _, n := range used {
		if n > 11 {
			t.Fatalf("a lane took %d messages of a run of 10", n)
		}
	}
	fly(b.laneOf(""))
	fly(b.laneOf(""))
	if used = count(25); len(used) != 1 {
		t.Fatalf("%d lanes used, one is free", len(used))
	}
	for l := range used {
		if l.aloft.Load() {
			t.Fatal("a message waits behind a batch in the air")
		}
		fly(l)
	}
	if used = count(30); len(used) != 3 {
		t.Fatalf("all in the air: %d of 3 lanes grow", len(used))
	}
	for range 100 {
		count(7)
		if l := b.laneOf("key"); l != mine {
			t.Fatal("a key changed its lane")
		}
	}
}

// A batch is looked through only as far as its contexts differ.
func TestBatchWanted(t *testing.T) {
	live, end := context.WithCancel(t.Context())
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	defer end()
	for name, c := range map[string]struct {
		ctxs []context.Context
		want bool
	}{
		"none":               {nil, true},
		"never ends":         {[]context.Context{context.Background(), context.TODO()}, true},
		"one that lives":     {[]context.Context{live, live, live}, true},
		"the first is over":  {[]context.Context{dead, live}, false},
		"the last is over":   {[]context.Context{live, live, dead}, false},
		"between two":        {[]context.Context{live, dead, live}, false},
		"after one for ever": {[]context.Context{context.Background(), dead}, false},
	} {
		var b batch
		for _, ctx := range c.ctxs {
			b.msgs, b.items = append(b.msgs, Message{}), append(b.items, item{ctx: ctx})
		}
		if got := b.wanted(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if live, dead := b.sift(); (len(dead.items) == 0) != c.want || len(live.items)+len(dead.items) != len(c.ctxs) {
			t.Errorf("%s: sifted into %d and %d", name, len(live.items), len(dead.items))
		}
	}
}
