package kafka

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/localstack"
)

// loopCase is a loop whose members are killed, and how.
type loopCase struct {
	*stage
	nextGen bool
	n       int
	rate    int // of inputs, in a second; 0: all at once
	session time.Duration
	every   time.Duration // between two disturbances
	strict  bool          // also before the group has got over the last one
	least   int           // so many members are killed at least
	most    time.Duration // without progress

	in, out, group string
	members        [3]*member
	killed, frozen int
	lost, ended    int
	steps          map[string]int // at which members were killed
}

// member is a process that is started anew when it has ended.
type member struct {
	n      int
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr *tail
	over   chan struct{} // closed when cmd has ended
	err    error
	step   string    // where it is to kill itself
	due    time.Time // when it is killed, if it hasn't come to its step
	frozen time.Time // when it goes on
}

// tail is the end of what was written to it.
type tail struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.b.Len() > 1<<20 {
		w.b.Next(w.b.Len() / 2)
	}
	return w.b.Write(p)
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// TestTxnLoopKilled: three processes run the loop over one group and are killed at
// random steps of it, and stopped for longer than their session; answers are lost. A
// reader of committed messages finds each input's output once, in the order of its key (twmb/franz-go#1222, twmb/franz-go#57).
func TestTxnLoopKilled(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		if !s.real && !s.raises {
			t.Skip("the same at length: TestTxnLoopAtLength")
		}
		c := &loopCase{stage: s, n: 400, rate: 500, session: 400 * time.Millisecond, every: 300 * time.Millisecond, least: 2}
		if s.real {
			c.n, c.rate, c.session, c.every, c.least = 3000, 500, time.Second, time.Second, 3
		}
		c.run(t)
	})
}

// TestTxnLoopAtLength: the same for so many inputs as the variable says, with a kill
// every two seconds, by both protocols of groups.
//
//	ONCELINE_LOOP=100000 go test -v -timeout 60m -run TestTxnLoopAtLength ./adapters/kafka
//
// With ONCELINE_LOCAL=1 on Apache Kafka, too.
func TestTxnLoopAtLength(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("ONCELINE_LOOP"))
	if n == 0 {
		t.Skip("set ONCELINE_LOOP to a number of inputs, such as 100000")
	}
	onStages(t, func(t *testing.T, s *stage) {
		for name, nextGen := range map[string]bool{"classic": false, "consumer": true} {
			t.Run(name, func(t *testing.T) {
				(&loopCase{stage: s, nextGen: nextGen, n: n, rate: 1500, session: time.Second, every: 2 * time.Second, strict: true, least: n / 4000}).run(t)
			})
		}
	})
}

func (c *loopCase) run(t *testing.T) {
	c.in, c.out, c.steps, c.most = c.topic(t, 6), c.topic(t, 4), map[string]int{}, time.Minute
	c.group = "g-" + c.in
	if c.nextGen {
		c.shortSession(t)
	}
	began := time.Now()
	for i := range c.members {
		c.members[i] = &member{n: i}
		c.start(t, c.members[i])
	}
	defer c.stop()
	var fed sync.WaitGroup
	feed, endFeed := context.WithCancel(t.Context())
	defer fed.Wait()
	defer endFeed()
	fed.Go(func() { c.feed(feed, t) })

	adm := kadm.NewClient(c.client(t))
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	disturb := time.NewTicker(c.every)
	defer disturb.Stop()
	done, moved, told, last := int64(0), time.Now(), time.Now(), time.Now()
	for done < int64(c.n) || c.killed < c.least {
		select {
		case <-look.C:
			if at := c.position(t, adm); at > done {
				done, moved = at, time.Now()
			}
		case <-disturb.C:
			if c.strict || moved.After(last) || done >= int64(c.n) || time.Since(last) > 10*c.every {
				last = time.Now()
				c.disturb(t)
			}
		}
		c.revive(t)
		if time.Since(told) > 5*time.Second {
			told = time.Now()
			t.Logf("%4.0f s: %d of %d inputs; %s", time.Since(began).Seconds(), done, c.n, c)
		}
		if time.Since(moved) > c.most && done < int64(c.n) {
			c.stalled(t, adm)
			t.Fatalf("no progress for %v at %d of %d; %s", c.most, done, c.n, c)
		}
		if t.Failed() {
			return
		}
	}
	fed.Wait()
	c.release(t)
	took := time.Since(began)
	c.check(t)
	t.Logf("%d inputs in %v; %s", c.n, took.Round(time.Second/10), c)
}

// shortSession sets the session of a group that the broker assigns.
func (c *loopCase) shortSession(t *testing.T) {
	v := strconv.FormatInt(c.session.Milliseconds(), 10)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, c.group
	kv := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	kv.Name, kv.Value = "consumer.session.timeout.ms", &v
	res.Configs = append(res.Configs, kv)
	req.Resources = append(req.Resources, res)
	code(t, kv.Name, ask[*kmsg.IncrementalAlterConfigsResponse](t, c.client(t), req).Resources[0].ErrorCode, 0)
}

func (c *loopCase) String() string {
	var at []string
	for _, step := range slices.Sorted(maps.Keys(c.steps)) {
		at = append(at, fmt.Sprint(c.steps[step], " ", step))
	}
	return fmt.Sprintf("%d kills (%s), %d stopped and continued, %d answers lost, %d ended by themselves", c.killed, strings.Join(at, ", "), c.frozen, c.lost, c.ended)
}

func (c *loopCase) start(t *testing.T, m *member) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(memberConfig{Address: c.Address(), In: c.in, Out: c.out, Group: c.group, ID: fmt.Sprintf("x-%s-%d", c.in, m.n),
		Session: c.session, Batch: 40, NextGen: c.nextGen})
	if err != nil {
		t.Fatal(err)
	}
	m.cmd, m.stderr, m.over, m.step = exec.Command(exe), &tail{}, make(chan struct{}), ""
	m.due, m.frozen = time.Time{}, time.Time{}
	m.cmd.Env = append(os.Environ(), memberEnv+"="+string(text))
	m.cmd.Stderr = m.stderr
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func(cmd *exec.Cmd, over chan struct{}) {
		m.err = cmd.Wait()
		close(over)
	}(m.cmd, m.over)
}

// feed publishes the inputs.
func (c *loopCase) feed(ctx context.Context, t *testing.T) {
	conn, err := New(ctx, Options{Client: c.seeds()})
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	p, err := conn.OpenPublisher(ctx, c.in)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = p.Close(context.WithoutCancel(ctx)) }()
	began := time.Now()
	for at := 0; at < c.n; at += 100 {
		ms := messages(100, at)
		for i := range ms {
			ms[i].Key, ms[i].ID = strconv.Itoa((at+i)%23), fmt.Sprintf("%07d", at+i)
			ms[i].Body = []byte(ms[i].ID)
		}
		if _, err := p.Publish(ctx, ms...); err != nil {
			if ctx.Err() == nil {
				t.Errorf("publish: %v", err)
			}
			return
		}
		if c.rate > 0 { // on time
			select {
			case <-time.After(time.Until(began.Add(time.Duration(at+100) * time.Second / time.Duration(c.rate)))):
			case <-ctx.Done():
				return
			}
		}
	}
}

// position is how many inputs the group is behind; markers are no part of the topic.
func (c *loopCase) position(t *testing.T, adm *kadm.Client) (sum int64) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	os, err := adm.FetchOffsets(ctx, c.group)
	if err != nil {
		return 0
	}
	os.Each(func(o kadm.OffsetResponse) { sum += max(0, o.At) })
	return sum
}

// disturb does something to a member at random that nothing happens to yet.
func (c *loopCase) disturb(t *testing.T) {
	var free []*member
	for _, m := range c.members {
		if m.frozen.IsZero() && m.due.IsZero() {
			free = append(free, m)
		}
	}
	if len(free) == 0 {
		return
	}
	m := free[rand.IntN(len(free))]
	if c.killed > c.frozen*3 && len(free) == len(c.members) {
		// It stands still for longer than its session, and then doesn't know it.
		if err := m.cmd.Process.Signal(syscall.SIGSTOP); err == nil {
			c.frozen++
			m.frozen = time.Now().Add(3 * c.session / 2)
		}
		return
	}
	if c.killed%3 == 1 {
		kind := localstack.LoseResponse
		if c.lost%2 == 1 {
			kind = localstack.LoseRequest
		}
		c.Inject(localstack.Fault{Kind: kind, API: "EndTxn", Times: 1, Cut: true})
		c.lost++
	}
	step, delay := memberSteps[rand.IntN(len(memberSteps))], time.Duration(0)
	if strings.HasSuffix(step, "ing") {
		delay = time.Duration(rand.Int64N(int64(8 * time.Millisecond)))
	}
	m.step = step
	_, _ = fmt.Fprintln(m.stdin, step, int64(delay))
	m.due = time.Now().Add(max(c.every, time.Second)) // one that has nothing to do doesn't come to it
}

// revive lets members go on, kills those that didn't come to their step, and starts
// those that have ended.
func (c *loopCase) revive(t *testing.T) {
	now := time.Now()
	for _, m := range c.members {
		if !m.frozen.IsZero() && now.After(m.frozen) {
			_ = m.cmd.Process.Signal(syscall.SIGCONT)
			m.frozen = time.Time{}
		}
		if !m.due.IsZero() && now.After(m.due) && !m.ended() {
			m.step = "anywhere"
			_ = m.cmd.Process.Kill()
			<-m.over
		}
		if !m.ended() {
			continue
		}
		var exit *exec.ExitError
		if status, ok := m.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && errors.As(m.err, &exit) && status.Signal() == syscall.SIGKILL && m.step != "" {
			c.killed++
			c.steps[m.step]++
		} else {
			c.ended++
			t.Logf("member %d ended by itself: %v: %s", m.n, m.err, last(m.stderr.String(), 5))
			if c.ended > 3+c.frozen {
				t.Fatalf("members end by themselves: %s", c)
			}
		}
		c.start(t, m)
	}
}

func (m *member) ended() bool {
	select {
	case <-m.over:
		return true
	default:
		return false
	}
}

func last(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// stop ends all members at once.
func (c *loopCase) stop() {
	for _, m := range c.members {
		if m != nil && m.cmd != nil && m.cmd.Process != nil {
			_ = m.cmd.Process.Kill()
			<-m.over
		}
	}
}

// release ends all members gracefully.
func (c *loopCase) release(t *testing.T) {
	for _, m := range c.members {
		_ = m.cmd.Process.Signal(syscall.SIGCONT)
		_ = m.stdin.Close()
	}
	for _, m := range c.members {
		select {
		case <-m.over:
			// One that was to kill itself may still have come to its step.
			if m.err != nil && m.step == "" {
				t.Errorf("member %d: %v: %s", m.n, m.err, last(m.stderr.String(), 20))
			}
		case <-time.After(mustCome):
			t.Errorf("member %d doesn't end: %s", m.n, c.trace(m))
		}
	}
}

// trace makes a member print its stacks, which ends it.
func (c *loopCase) trace(m *member) string {
	_ = m.cmd.Process.Signal(syscall.SIGCONT)
	_ = m.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-m.over:
	case <-time.After(10 * time.Second):
	}
	return m.stderr.String()
}

// stalled shows where a loop hangs that makes no progress.
func (c *loopCase) stalled(t *testing.T, adm *kadm.Client) {
	ctx := ctxOf(t, 10*time.Second)
	groups, err := adm.DescribeGroups(ctx, c.group)
	t.Logf("group: %+v, %v", groups, err)
	offsets, err := adm.FetchOffsets(ctx, c.group)
	t.Logf("offsets: %+v, %v", offsets, err)
	stable, err := adm.ListCommittedOffsets(ctx, c.in, c.out)
	t.Logf("stable: %+v, %v", stable, err)
	ends, err := adm.ListEndOffsets(ctx, c.in, c.out)
	t.Logf("ends: %+v, %v", ends, err)
	for _, m := range c.members {
		t.Logf("member %d: %s", m.n, c.trace(m))
	}
}

// check reads what is committed: each input's output once, and those of a key in their
// order.
func (c *loopCase) check(t *testing.T) {
	type place struct{ id, key string }
	var got []place
	c.records(t, c.out, func(r *kgo.Record) {
		id := string(r.Value)
		got = append(got, place{id, string(r.Key)})
		if n, err := strconv.Atoi(id); err != nil || string(r.Key) != strconv.Itoa(n%23) {
			t.Errorf("%q has the key %q", id, r.Key)
		}
	})
	seen, last, wrong := map[string]int{}, map[string]string{}, 0
	bad := func(format string, a ...any) {
		if wrong++; wrong <= 20 {
			t.Errorf(format, a...)
		}
	}
	for _, p := range got {
		if seen[p.id]++; seen[p.id] > 1 {
			bad("%s has %d outputs", p.id, seen[p.id])
		}
		if p.id <= last[p.key] {
			bad("key %s: %s behind %s", p.key, p.id, last[p.key])
		}
		last[p.key] = p.id
	}
	for i := range c.n {
		if id := fmt.Sprintf("%07d", i); seen[id] == 0 {
			bad("%s has no output", id)
		}
	}
	if wrong > 0 {
		t.Errorf("%d outputs are wrong of %d for %d inputs", wrong, len(got), c.n)
	}
}
