package sqs

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/onceline/onceline/broker"
)

// After a failed message, the later ones of its key of the call don't overtake
// it; those of other keys go on.
func TestNoOvertaking(t *testing.T) {
	t.Parallel()
	for name, packed := range map[string]bool{"apart": false, "packed": true} {
		t.Run(name, func(t *testing.T) {
			w := newTap()
			opts := []Option{FIFO(true), PollWait(0), w.option()}
			if packed {
				opts = append(opts, PackKeys())
			}
			c := dialShared(t, opts...)
			e := entity(t)
			ensure(t, c, e)
			p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
			var ms []broker.Message
			for i := range 6 { // a0 b0 - a1 b1 - ...
				ms = append(ms, keyed("a", fmt.Sprint("a", i))...)
				ms = append(ms, keyed("b", fmt.Sprint("b", i))...)
				ms = append(ms, message(fmt.Sprint("u", i)))
			}
			var mu sync.Mutex
			together := 0 // most messages of one key in a request
			var struck string
			done := false
			w.on("SendMessageBatch", func(r *http.Request, goOn func(*http.Request) (*http.Response, error)) (*http.Response, error) {
				mu.Lock()
				keys := map[string]int{}
				for _, x := range body(r)["Entries"].([]any) {
					en := x.(map[string]any)
					keys[en["MessageGroupId"].(string)]++
					together = max(together, keys[en["MessageGroupId"].(string)])
					if en["MessageDeduplicationId"] == "a1" && !done {
						struck, done = en["Id"].(string), true
					}
				}
				id := struck
				struck = ""
				mu.Unlock()
				switch {
				case id == "":
					return goOn(r)
				case packed:
					return refuse(1, 400, "RequestThrottled", "slow down")(r, goOn)
				}
				return edit(1, failEntry(id, "RequestThrottled", false))(r, goOn)
			})
			rs, err := p.Publish(t.Context(), ms...)
			wantErr(t, err, broker.ErrBusy)
			if want := map[bool]int{true: 4, false: 1}[packed]; together != want {
				t.Errorf("%d messages of a key in one request, want %d", together, want)
			}
			behind := 0
			for i := range rs {
				switch {
				case errors.Is(rs[i].Err, errBehind):
					behind++
					if rs[i].Verdict != broker.Refused || !errors.Is(rs[i].Err, broker.ErrUnavailable) {
						t.Errorf("%q: %v, %v", ms[i].ID, rs[i].Verdict, rs[i].Err)
					}
				case ms[i].Key == "a" && i > 3 && rs[i].Verdict.OK():
					t.Errorf("%q overtook a1", ms[i].ID)
				}
			}
			if behind == 0 {
				t.Error("nothing was held back")
			}
			if !packed && behind != 4 {
				t.Errorf("%d held back, want a2 to a5", behind)
			}
			// The retry of what failed brings the order about.
			var again []broker.Message
			for i := range rs {
				if !rs[i].Verdict.OK() {
					again = append(again, ms[i])
				}
			}
			publish(t, p, again...)
			order := map[string][]string{}
			for n := 0; n < len(ms); {
				ds := receive(t, r, 10, mustCome)
				if len(ds) == 0 {
					t.Fatalf("%d came", n)
				}
				for _, d := range ds {
					order[d.Key] = append(order[d.Key], d.ID)
					ack(t, d)
					n++
				}
			}
			for _, key := range []string{"a", "b"} {
				for i, id := range order[key] {
					if id != fmt.Sprint(key, i) {
						t.Fatalf("key %s came as %v", key, order[key])
					}
				}
			}
			if len(order[""]) != 6 {
				t.Errorf("unkeyed: %v", order[""])
			}
		})
	}
}

func TestPlanWaves(t *testing.T) {
	for _, n := range []int{7, 25} { // by comparing and by map
		var ms []broker.Message
		for i := range n {
			ms = append(ms, broker.Message{ID: fmt.Sprint(i), Key: []string{"", "a", "b", "a"}[i%4]})
		}
		order, ends := planWaves(ms)
		seen := map[int]bool{}
		last := map[string]int{}
		from := 0
		for _, to := range ends {
			keys := map[string]bool{}
			for _, i := range order[from:to] {
				seen[i] = true
				key := ms[i].Key
				if key == "" {
					continue
				}
				if keys[key] {
					t.Fatalf("%d messages: key %q twice in a wave", n, key)
				}
				keys[key] = true
				if at, ok := last[key]; ok && at > i {
					t.Fatalf("%d messages: key %q out of order", n, key)
				}
				last[key] = i
			}
			from = to
		}
		if len(seen) != n || from != n {
			t.Errorf("%d messages: %d planned", n, len(seen))
		}
	}
	if order, _ := planWaves(messages(30, "m")); order != nil {
		t.Error("messages without a key have one wave")
	}
}
