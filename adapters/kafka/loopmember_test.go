package kafka

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
)

// memberEnv makes the test binary a member of a loop: a process that runs
// broker.Process until its stdin ends, or it is killed.
const memberEnv = "ONCELINE_KAFKA_LOOP_MEMBER"

// memberConfig is what a member is told, as JSON.
type memberConfig struct {
	Address        string
	In, Out, Group string
	ID             string // of its transactor
	Session        time.Duration
	Batch          int
	NextGen        bool
}

// The steps of a transaction at which a member can be told to kill itself. Behind
// those that a call of the broker is under way in, it lives on for a moment.
var memberSteps = []string{"received", "begun", "settled", "handled", "publishing", "published", "committing", "committed", "aborting"}

// fuse is the step at which the process ends, once somebody has set it.
type fuse struct {
	mu    sync.Mutex
	step  string
	delay time.Duration
}

func (f *fuse) set(step string, delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.step, f.delay = step, delay
}

// at is told that the process is at a step.
func (f *fuse) at(step string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.step != step:
	case f.delay > 0:
		time.AfterFunc(f.delay, die)
	default:
		die()
	}
}

// die ends the process as a power cut would.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func runIfMember() {
	text := os.Getenv(memberEnv)
	if text == "" {
		return
	}
	var c memberConfig
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		ctx, stop := context.WithCancel(context.Background())
		if err = c.run(ctx, stop); ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = nil // told to end as it began
		}
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run is the life of a member; it calls stop when its stdin has ended.
func (c memberConfig) run(ctx context.Context, stop context.CancelFunc) error {
	f := &fuse{}
	go func() { // also the end of the parent
		defer stop()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			var step string
			var delay time.Duration
			if _, err := fmt.Sscan(lines.Text(), &step, (*int64)(&delay)); err == nil {
				f.set(step, delay)
			}
		}
	}()
	conn, err := New(ctx, Options{Session: c.Session, NextGen: c.NextGen, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), Client: []kgo.Opt{
		kgo.SeedBrokers(c.Address), kgo.DisableClientMetrics(), kgo.FetchMaxWait(100 * time.Millisecond), kgo.MetadataMinAge(50 * time.Millisecond),
		// The model waits for a member that died as it joined as long as a rebalance may
		// take, by default a minute.
		kgo.RebalanceTimeout(2 * time.Second)}})
	if err != nil {
		return err
	}
	rcv, err := conn.OpenReceiver(ctx, c.In+"/"+c.Group)
	if err != nil {
		return err
	}
	x, err := broker.OpenTransactor(ctx, conn, c.ID)
	if err != nil {
		return err
	}
	err = broker.Process(ctx, steppedReceiver{rcv, f}, steppedTransactor{x, f}, func(_ context.Context, in []broker.Delivery) (out []broker.Output, _ error) {
		for _, d := range in {
			out = append(out, broker.Output{Topic: c.Out, Message: broker.Message{ID: d.ID, Key: d.Key, Body: d.Body}})
		}
		f.at("handled")
		return out, nil
	}, broker.ProcessOptions{Batch: c.Batch, Backoff: broker.Backoff{Min: 5 * time.Millisecond, Max: 100 * time.Millisecond}, ErrorHook: func(err error) {
		fmt.Fprintln(os.Stderr, time.Now().Format("05.000"), strings.SplitN(err.Error(), "\n", 2)[0])
	}})
	end, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, e := range []error{err, x.Close(end), rcv.Close(end), conn.Close(end)} {
		if e != nil {
			return e
		}
	}
	return nil
}

type steppedReceiver struct {
	broker.Receiver
	f *fuse
}

func (r steppedReceiver) Receive(ctx context.Context, n int) ([]broker.Delivery, error) {
	ds, err := r.Receiver.Receive(ctx, n)
	if len(ds) > 0 {
		r.f.at("received")
	}
	return ds, err
}

type steppedTransactor struct {
	broker.Transactor
	f *fuse
}

func (x steppedTransactor) Begin(ctx context.Context) (broker.Transaction, error) {
	tx, err := x.Transactor.Begin(ctx)
	if err != nil {
		return nil, err
	}
	x.f.at("begun")
	return steppedTransaction{tx, x.f}, nil
}

type steppedTransaction struct {
	broker.Transaction
	f *fuse
}

func (x steppedTransaction) Settle(ctx context.Context, s []broker.Settlement) error {
	err := x.Transaction.Settle(ctx, s)
	x.f.at("settled")
	return err
}

func (x steppedTransaction) Publish(ctx context.Context, topic string, ms ...broker.Message) ([]broker.Receipt, error) {
	x.f.at("publishing")
	rs, err := x.Transaction.Publish(ctx, topic, ms...)
	x.f.at("published")
	return rs, err
}

func (x steppedTransaction) Commit(ctx context.Context) (broker.Outcome, error) {
	x.f.at("committing")
	o, err := x.Transaction.Commit(ctx)
	x.f.at("committed")
	return o, err
}

func (x steppedTransaction) Abort(ctx context.Context) error {
	x.f.at("aborting")
	return x.Transaction.Abort(ctx)
}
