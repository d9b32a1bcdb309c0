package rabbitmq

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// unacked against a plain map, over many random settlements.
func TestUnackedAgainstModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	q := &queue{}
	for range 50 {
		var u unacked
		model := map[uint64]bool{}
		next := uint64(1)
		for range 2000 {
			if rng.IntN(3) > 0 {
				u.push(pending{tag: next, q: q})
				model[next] = true
				next++
				continue
			}
			tag, multiple := uint64(rng.Int64N(int64(next)+1)), rng.IntN(20) == 0
			taken, ok := u.take(tag, multiple, nil)
			if want := model[tag] || tag == 0 && multiple; ok != want {
				t.Fatalf("take(%d, %v) is %v, want %v", tag, multiple, ok, want)
			}
			if !ok {
				continue
			}
			if !slices.IsSortedFunc(taken, func(a, b pending) int { return int(a.tag) - int(b.tag) }) {
				t.Fatal("taken out of order")
			}
			for _, p := range taken {
				if !model[p.tag] {
					t.Fatalf("%d was taken twice", p.tag)
				}
				delete(model, p.tag)
			}
			for left := range model {
				if multiple && (tag == 0 || left <= tag) {
					t.Fatalf("take(%d, true) left %d", tag, left)
				}
			}
			if rng.IntN(10) == 0 {
				u.put(taken)
				for _, p := range taken {
					model[p.tag] = true
				}
			}
			if u.len() != len(model) {
				t.Fatalf("%d wait, want %d", u.len(), len(model))
			}
		}
		if len(u.list) > 2*u.len()+200 {
			t.Errorf("%d places for %d deliveries", len(u.list), u.len())
		}
	}
}

// deque against a slice.
func TestDequeAgainstModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var d deque[int]
	var model []int
	for i := range 20_000 {
		switch rng.IntN(5) {
		case 0, 1:
			d.pushBack(i)
			model = append(model, i)
		case 2:
			d.pushFront(i)
			model = slices.Insert(model, 0, i)
		case 3:
			at := rng.IntN(len(model) + 1)
			d.insert(at, i)
			model = slices.Insert(model, at, i)
		default:
			if len(model) == 0 {
				continue
			}
			if got := d.popFront(); got != model[0] {
				t.Fatalf("popFront is %d, want %d", got, model[0])
			}
			model = model[1:]
			if rng.IntN(50) == 0 {
				d.clear()
				model = nil
			}
		}
		if d.n != len(model) || d.n > 0 && (*d.at(0) != model[0] || *d.at(d.n - 1) != model[d.n-1]) {
			t.Fatalf("%d elements, want %d", d.n, len(model))
		}
	}
}

// Patterns of many hashes against a long key end soon.
func TestTopicPatternsAreBounded(t *testing.T) {
	pattern, key := "", ""
	for range 60 {
		pattern += "#.a."
		key += "a."
	}
	if topicMatches(pattern+"b", key+"c") {
		t.Error("matches")
	}
	if !topicMatches(pattern+"#", key+"c") {
		t.Error("doesn't match")
	}
}
