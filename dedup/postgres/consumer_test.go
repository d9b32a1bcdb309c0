package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/postgres"
)

// Where a process that is a consumer finds its database.
const (
	consumerURL    = "ONCELINE_POSTGRES_CONSUMER_URL"
	consumerSchema = "ONCELINE_POSTGRES_CONSUMER_SCHEMA"
)

var consumed = series("m", 1000)

// consumerOptions end the session of a frozen consumer soon.
func consumerOptions(schema string) postgres.Options {
	return postgres.Options{Schema: schema, IdleTimeout: 200 * time.Millisecond}
}

// consume is what a consumer's process does: it applies all messages from the first,
// as after a restart that has lost its acks, until each may be acked; in batches, by
// a pipeline or one after the other.
func consume() error {
	ctx := context.Background()
	config, err := pgx.ParseConfig(os.Getenv(consumerURL))
	if err != nil {
		return err
	}
	p := &pool{config, make(chan *pgx.Conn, 1)}
	p.free <- nil
	s, err := postgres.New(p, consumerOptions(os.Getenv(consumerSchema)))
	if err != nil {
		return err
	}
	in := dedup.New[pgx.Tx](s, "c", dedup.Options{})
	query := insert(os.Getenv(consumerSchema))
	fmt.Println("started")
	for todo := consumed; len(todo) > 0; {
		n := min(1+rand.IntN(20), len(todo))
		var results []dedup.Result
		if rand.IntN(2) == 0 {
			results, err = postgres.OncePipelined(ctx, in, todo[:n], byID, func(b *pgx.Batch, id string) { b.Queue(query, id) })
		} else {
			results, err = dedup.OnceBatch(ctx, in, todo[:n], byID, func(ctx context.Context, tx pgx.Tx, id string) error {
				_, err := tx.Exec(ctx, query, id)
				return err
			})
		}
		var open []string
		for i, r := range results {
			switch r.Outcome {
			case dedup.Applied, dedup.Duplicate:
			case dedup.InFlight, dedup.Unknown:
				open = append(open, todo[i])
			default:
				return fmt.Errorf("%s: %v: %w", todo[i], r.Outcome, err)
			}
		}
		todo = append(open, todo[n:]...)
	}
	fmt.Println("done")
	return nil
}

// consumer is such a process.
type consumer struct {
	cmd  *exec.Cmd
	out  io.Closer
	line *bufio.Scanner
}

func startConsumer(t *testing.T, url, schema string) *consumer {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), consumerURL+"="+url, consumerSchema+"="+schema)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &consumer{cmd, out, bufio.NewScanner(out)}
	if !c.line.Scan() || c.line.Text() != "started" {
		t.Fatalf("the consumer says %q", c.line.Text())
	}
	return c
}

// ends waits for the process and reports whether it was done.
func (c *consumer) ends() bool {
	done := c.line.Scan() && c.line.Text() == "done"
	return c.cmd.Wait() == nil && done
}

// effectsOnce checks that no message has two effects, and returns how many have one.
func effectsOnce(t *testing.T, p *pool, schema string) int {
	t.Helper()
	got, err := p.ledger(t.Context(), fmt.Sprintf("%q.ledger", schema))
	if err != nil {
		t.Fatal(err)
	}
	for id, n := range got {
		if n != 1 {
			t.Fatalf("%d effects of %s", n, id)
		}
	}
	return len(got)
}

// TestConsumerKilled: consumers are killed in the middle again and again.
func TestConsumerKilled(t *testing.T) {
	t.Parallel()
	db := start(t)
	p := connect(t, db, 1)
	_, schema := open(t, p, consumerOptions(""))
	partial := 0
	for range 100 {
		c := startConsumer(t, db.URL(), schema)
		last := partial >= 5
		killer := time.AfterFunc(time.Duration(rand.Int64N(int64(40*time.Millisecond))), func() {
			if !last {
				_ = c.cmd.Process.Kill()
			}
		})
		done := c.ends()
		killer.Stop()
		n := effectsOnce(t, p, schema)
		switch {
		case last:
			if !done || n != len(consumed) {
				t.Errorf("%d messages have effects, want %d", n, len(consumed))
			}
			return
		case done && partial == 0:
			t.Fatal("it was done before it was killed")
		case done:
			partial = 5
		case n > 0 && n < len(consumed):
			partial++
		}
	}
	t.Fatal("never done")
}
