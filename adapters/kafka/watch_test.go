package kafka

import (
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
)

// watched is what a receiver was told of its assignment.
type watched struct {
	mu           sync.Mutex
	sessions     int
	gained, lost int
}

func (w *watched) watch(a broker.Assignment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.Began {
		w.sessions++
	}
	w.gained += a.Gained
	w.lost += a.Lost
}

func (w *watched) read() (sessions, gained, lost int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sessions, w.gained, w.lost
}

// TestGroupWatchAssignment: a member that comes makes the others begin a session, and
// what each gained less what it lost is what there is.
func TestGroupWatchAssignment(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]func(*Options){"classic": func(*Options) {}, "consumer": nextGen} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := cluster(t, 4)
			conn := dial(t, c, mode)
			publish(t, openPublisher(t, conn, "t"), messages(40, 0, "a", "b", "c", "d", "e", "f", "g", "h")...)
			var one, two watched
			r := openReceiver(t, conn, "t/g", broker.WatchAssignment(one.watch))
			settleIn(ctxOf(t, mustCome), r, broker.Ack, receive(t, r, 40)...)
			if sessions, gained, lost := one.read(); sessions < 1 || gained != 4 || lost != 0 {
				t.Fatalf("alone: %d sessions, %d gained, %d lost", sessions, gained, lost)
			}
			before, _, _ := one.read()
			r2 := openReceiver(t, conn, "t/g", broker.WatchAssignment(two.watch))
			end := time.Now().Add(mustCome)
			for {
				tryReceive(t, r, 1, 50*time.Millisecond) // both must be asked for their group to go on
				tryReceive(t, r2, 1, 50*time.Millisecond)
				sessions, gained, lost := one.read()
				_, gained2, lost2 := two.read()
				if sessions > before && lost == 2 && gained2 == 2 && gained-lost+gained2-lost2 == 4 {
					return
				}
				if time.Now().After(end) {
					t.Fatalf("the first: %d sessions, %d gained, %d lost; the second: %d gained, %d lost", sessions, gained, lost, gained2, lost2)
				}
			}
		})
	}
}
