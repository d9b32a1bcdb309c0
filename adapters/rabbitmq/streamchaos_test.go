package rabbitmq

import (
	"context"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
)

// A restart of the broker in the midst of a publish: whoever waits gets the
// answer from the next connection, and each message is stored once.
func TestStreamPublishOverRestarts(t *testing.T) {
	t.Parallel()
	s, url := streamServer(t)
	c := dialStreams(t, url)
	e := streamEntity(t, c)
	p := streamPub(t, c, e)
	var restarts, next atomic.Int64
	var publishing sync.WaitGroup
	for range 4 {
		publishing.Go(func() {
			for restarts.Load() < 10 {
				m := streamMessages(int(next.Add(1)), 1)[0]
				if r, err := p.Publish(t.Context(), m); err != nil || r[0].Verdict != broker.Stored {
					t.Errorf("%q: %s, %v", m.ID, r[0].Verdict, err)
				}
			}
		})
	}
	for restarts.Load() < 10 {
		for before := next.Load(); next.Load() < before+20; {
			runtime.Gosched()
		}
		s.Restart(true)
		restarts.Add(1)
	}
	publishing.Wait()
	got := storedIDs(t, c, e)
	want := idsOfMessages(streamMessages(1, int(next.Load())))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d of %d are stored", len(got), len(want))
	}
}

func idsOfMessages(ms []broker.Message) []string {
	ids := make([]string, len(ms))
	for i := range ms {
		ids[i] = ms[i].ID
	}
	return ids
}

// Callers give up at any moment, the broker restarts at any moment, and each
// retry is by ID: in the end all are stored. Twice is what the case is that
// resolve's comment leaves open.
func TestStreamRetriesOverRestartsLoseNothing(t *testing.T) {
	t.Parallel()
	s, url := streamServer(t)
	streamChaos(t, url, func() { s.Restart(true) })
}

// The same, with connections that are cut while the broker lives, and may have
// yet to read what came over them.
func TestStreamRetriesOverCutsLoseNothing(t *testing.T) {
	t.Parallel()
	_, url := streamServer(t)
	streamCuts(t, url)
}

func streamCuts(t *testing.T, url string) {
	var mu sync.Mutex
	var open []net.Conn
	streamChaos(t, url, func() {
		mu.Lock()
		defer mu.Unlock()
		for _, nc := range open {
			nc.Close()
		}
		open = nil
	}, Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		open = append(open, nc)
		return nc, nil
	}))
}

func streamChaos(t *testing.T, url string, disturb func(), opts ...Option) {
	c := dialStreams(t, url, opts...)
	e := streamEntity(t, c)
	p := streamPub(t, c, e)
	const publishers, each = 4, 250
	var publishing sync.WaitGroup
	var answered, unknown atomic.Int64
	for i := range publishers {
		publishing.Go(func() {
			for n, m := range streamMessages(i*each, each) {
				for try := 0; ; try++ {
					patience := time.Duration(20+37*((n+try)%20)) * time.Microsecond
					if try > 20 {
						patience = 10 * time.Second
					}
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					r, err := p.Publish(ctx, m)
					cancel()
					if r[0].Verdict.OK() {
						break
					}
					if r[0].Verdict == broker.Unknown {
						unknown.Add(1)
					}
					if try > 25 {
						t.Errorf("%q: %s: %v", m.ID, r[0].Verdict, err)
						break
					}
				}
				answered.Add(1)
			}
		})
	}
	for last := int64(0); last < publishers*each; last += 40 {
		for answered.Load() < last {
			runtime.Gosched()
		}
		disturb()
	}
	publishing.Wait()
	copies := map[string]int{}
	for _, id := range storedIDs(t, c, e) {
		copies[id]++
	}
	more := 0
	for _, id := range idsOfMessages(streamMessages(0, publishers*each)) {
		if copies[id] == 0 {
			t.Errorf("%q has a good receipt and is lost", id)
		}
		more += max(0, copies[id]-1)
	}
	if unknown.Load() == 0 {
		t.Error("nobody gave up")
	}
	t.Logf("%d answers unknown, %d copies too many", unknown.Load(), more)
	if more > 5 {
		t.Errorf("%d copies too many", more)
	}
}
