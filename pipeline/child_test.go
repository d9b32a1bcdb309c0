package pipeline_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/onceline/onceline/adapters/kafka"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/pipeline"
)

// What a process that runs a pipeline, until it kills itself or is killed, is told.
const (
	childFile  = "ONCELINE_PIPELINE_CHILD_FILE"
	childURL   = "ONCELINE_PIPELINE_CHILD_URL"
	childSink  = "ONCELINE_PIPELINE_CHILD_SINK"  // transactional or outbox
	childStep  = "ONCELINE_PIPELINE_CHILD_STEP"  // at which it kills itself; empty: none
	childSkip  = "ONCELINE_PIPELINE_CHILD_SKIP"  // so many of those steps pass before
	childNames = "ONCELINE_PIPELINE_CHILD_NAMES" // what its topics and IDs begin with
	childTotal = "ONCELINE_PIPELINE_CHILD_TOTAL"
	// childBudget is the restart budget and the checkpoint timeout; empty: those of
	// all tests.
	childBudget = "ONCELINE_PIPELINE_CHILD_BUDGET"
)

// child runs a pipeline over Kafka until the messages it has processed and those of
// its predecessors are childTotal.
func child() error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s, err := sqlite.Open(ctx, os.Getenv(childFile), sqlite.Options{BusyTimeout: 20 * time.Second})
	if err != nil {
		return err
	}
	conn, err := broker.Open(ctx, os.Getenv(childURL))
	if err != nil {
		return err
	}
	skip, err := strconv.Atoi(os.Getenv(childSkip))
	if err != nil {
		return err
	}
	total, err := strconv.Atoi(os.Getenv(childTotal))
	if err != nil {
		return err
	}
	names := os.Getenv(childNames)
	sink := pipeline.Transactional[*sql.Tx](conn, names+"crash", pipeline.TransactionalOptions{})
	if os.Getenv(childSink) == "outbox" {
		sink = pipeline.Outbox(s, dedup.OutboxOptions{})
	}
	op := counting{topic: names + "out"}
	o := options()
	o.MaxInput = total / 12
	if budget := os.Getenv(childBudget); budget != "" {
		if o.RestartBudget, err = time.ParseDuration(budget); err != nil {
			return err
		}
		o.CheckpointTimeout = o.RestartBudget
	}
	o.Log = nil
	o.ErrorHook = nil
	o.Checkpointed = func(i pipeline.Info) {
		sum := 0
		for _, n := range op.Value {
			sum += n
		}
		if sum == total {
			stop()
		}
	}
	p, err := pipeline.New(pipeline.Config[*sql.Tx]{Name: "crash", Store: s, Sources: []pipeline.Source{pipeline.From(conn, names+"in/crash")}, Operator: op.operator(), Sink: sink, Options: o})
	if err != nil {
		return err
	}
	pipeline.AtStep(p, func(step string) {
		if step != os.Getenv(childStep) {
			return
		}
		if skip--; skip < 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	// All may have been processed by those that were killed.
	go func() {
		fmt.Println("started")
		_, _ = io.Copy(io.Discard, os.Stdin) // the parent's end
		stop()
	}()
	err = p.Run(ctx)
	fmt.Println("done")
	return err
}

// spawn runs a child until it ends, and reports whether it was killed.
func spawn(t *testing.T, env map[string]string) (killed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = os.Environ()
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) }) // shows where it hangs
	defer late.Stop()
	for lines := bufio.NewScanner(out); lines.Scan(); {
	}
	err = cmd.Wait()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		t.Fatalf("the child ended by %v: %s", err, stderr.String())
	}
	return false
}
