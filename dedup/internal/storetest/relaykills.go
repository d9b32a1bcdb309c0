package storetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// RelayKills is an outbox, empty, whose relays are processes that are killed.
type RelayKills[T any] struct {
	Driver dedup.OutboxDriver[T]
	// Broker is the address of the broker that they send to.
	Broker string
	// Env is what a process of this program has in its environment to be a relay, which
	// calls [RunRelay].
	Env []string
	// Fault makes the broker lose some answers, and may cut connections to the store.
	Fault func()
	// Kills and Messages are how many there are at least.
	Kills, Messages int
}

// relayBroker is where a process that is a relay finds its broker.
const relayBroker = "ONCELINE_RELAY_BROKER"

// RunRelay relays the topic "orders" of a store, in a process that [RelayKills] has
// started, until it is killed. How much it sends at a time, and how
// long it waits, is set here.
func RunRelay(ctx context.Context, s dedup.OutboxStore, o dedup.RelayOptions) error {
	conn, err := broker.Open(ctx, os.Getenv(relayBroker))
	if err != nil {
		return err
	}
	to, err := conn.OpenPublisher(ctx, "orders")
	if err != nil {
		return err
	}
	fmt.Println("started")
	o.Batch, o.PublishTimeout = 20, 300*time.Millisecond
	o.Backoff = broker.Backoff{Min: 10 * time.Millisecond, Max: 50 * time.Millisecond}
	return dedup.NewRelay(s, "orders", to, o).Run(ctx)
}

func (k RelayKills[T]) start(t *testing.T) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), k.Env...), relayBroker+"="+k.Broker)
	cmd.Stderr = os.Stderr
	return startProcess(t, cmd)
}

// Run has eight writers write, and two relays send, of which one after the other is
// killed and started again. Each message is in the broker once, in the order of its
// key.
func (k RelayKills[T]) Run(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	conn, err := broker.Open(ctx, k.Broker)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	entity := broker.Entity{Topic: "orders", Subscription: "ORDERS/all"}
	if err := conn.Ensure(ctx, entity); err != nil {
		t.Fatal(err)
	}
	relays := [2]*process{k.start(t), k.start(t)}

	const keys = 12
	var turns [keys]sync.Mutex
	var next [keys]int
	var written atomic.Int64
	var writing sync.WaitGroup
	done := make(chan struct{})
	out := dedup.NewOutbox(k.Driver, "orders", dedup.OutboxOptions{Others: true})
	for w := range 8 {
		writing.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 5))
			for ctx.Err() == nil {
				select {
				case <-done:
					return
				default:
				}
				at := random.IntN(keys)
				turns[at].Lock()
				id := fmt.Sprintf("k%02d-%05d", at, next[at])
				err := dedup.ErrLost
				for errors.Is(err, dedup.ErrLost) || errors.Is(err, dedup.ErrCommitUnknown) {
					// Where the first commit took place there are two rows, of one ID.
					err = out.InTx(ctx, func(tx T) error {
						return out.AddTx(ctx, tx, broker.Message{ID: id, Key: fmt.Sprintf("k%02d", at)})
					})
				}
				if err == nil {
					next[at]++
					written.Add(1)
				}
				turns[at].Unlock()
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	kills, midway := 0, 0
	for ctx.Err() == nil && (kills < k.Kills || int(written.Load()) < k.Messages) {
		pauseFor(time.Duration(10+rand.IntN(80)) * time.Millisecond)
		victim := kills % len(relays)
		relays[victim].kill()
		kills++
		if kills == 2 && k.Fault != nil {
			k.Fault()
		}
		if k.backlog(ctx, t).Waiting > 0 {
			midway++
		}
		relays[victim] = k.start(t)
	}
	close(done)
	writing.Wait()
	if err := out.Close(ctx); err != nil {
		t.Error(err)
	}
	for {
		b := k.backlog(ctx, t)
		if b.Held+b.Parked > 0 {
			t.Fatalf("backlog %v", b)
		}
		if b.Waiting == 0 {
			break
		}
		pauseFor(10 * time.Millisecond)
	}
	for _, p := range relays {
		p.kill()
	}
	all := receiveAll(ctx, t, conn, entity.Subscription, int(written.Load()))
	t.Logf("%d messages, %d kills, %d of them with a backlog", written.Load(), kills, midway)
	if midway == 0 {
		t.Error("no kill found messages that were to be sent")
	}
	slices.SortFunc(all, func(a, b broker.Delivery) int {
		return int(int64(a.Position.Offset) - int64(b.Position.Offset))
	})
	var seen [keys]int
	for _, d := range all {
		var key, n int
		if _, err := fmt.Sscanf(d.ID, "k%02d-%05d", &key, &n); err != nil {
			t.Fatal(err)
		}
		if n != seen[key] {
			t.Errorf("%s comes where %d of its key is to come", d.ID, seen[key])
		}
		seen[key] = n + 1
	}
	if seen != next {
		t.Errorf("%v have come, of %v", seen, next)
	}
}

// backlog asks until it finds a connection that isn't cut.
func (k RelayKills[T]) backlog(ctx context.Context, t *testing.T) dedup.OutboxBacklog {
	t.Helper()
	for {
		b, err := k.Driver.OutboxBacklog(ctx, "orders")
		if err == nil {
			return b
		}
		if !errors.Is(err, dedup.ErrLost) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// receiveAll receives want messages, and what comes beside them.
func receiveAll(ctx context.Context, t *testing.T, conn broker.Conn, subscription string, want int) []broker.Delivery {
	t.Helper()
	rcv, err := conn.OpenReceiver(ctx, subscription)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rcv.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	var all []broker.Delivery
	for ctx.Err() == nil {
		wait := patience
		if len(all) >= want {
			wait = 200 * time.Millisecond // nothing more is expected
		}
		bound, cancel := context.WithTimeout(ctx, wait)
		ds, err := rcv.Receive(bound, 200)
		cancel()
		if len(ds) == 0 {
			if len(all) < want {
				t.Errorf("%d messages have come, of %d: %v", len(all), want, err)
			}
			return all
		}
		for i := range ds {
			if ds[i].Attempt.Number > 1 {
				continue
			}
			all = append(all, ds[i])
			if _, err := ds[i].Ack(ctx); err != nil {
				t.Error(err)
			}
		}
	}
	return all
}

// process is a relay of its own.
type process struct {
	cmd *exec.Cmd
	out io.ReadCloser
}

func startProcess(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd, out}
	t.Cleanup(p.kill)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the relay doesn't start: %v", err)
	}
	return p
}

func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}
