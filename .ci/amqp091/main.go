// Amqp091 runs the tests that the module github.com/rabbitmq/amqp091-go has for
// itself against the AMQP 0-9-1 emulator or a real server, and holds the result
// of each to what is expected of it.
//
//	go run ./.ci/amqp091                                   on the emulator
//	go run ./.ci/amqp091 -server                           on the RabbitMQ installed here
//	go run ./.ci/amqp091 -real amqp://… -management http://…  on one that runs
//	go run ./.ci/amqp091 -run 'Recovery'                   some of them
//
// Every test is expected to pass, but for those in the table of expected.go. It
// exits with 1 when a result is another than expected, on a real server also when it
// is asked again, when a test passes that is expected to fail, and when a test has no
// result at all; with 3, having asked nothing, when -server finds no RabbitMQ here.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/onceline/onceline/localstack"
	"github.com/onceline/onceline/localstack/rabbitmq"
)

const module = "github.com/rabbitmq/amqp091-go"

func main() {
	server := flag.Bool("server", false, "start the RabbitMQ that is installed on this machine, and run against that")
	real := flag.String("real", "", "the URL of a real server to run against instead of the emulator, `amqp://…`")
	management := flag.String("management", "http://guest:guest@127.0.0.1:15672", "with -real, the `URL` of the server's management plugin")
	pattern := flag.String("run", "", "run only the tests whose name matches `regexp`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	summary, err := run(ctx, where{*server, *real, *management}, *pattern)
	if err != nil {
		fmt.Fprintln(os.Stderr, "amqp091:", err)
		stop()
		if errors.Is(err, localstack.ErrNotInstalled) {
			os.Exit(3)
		}
		os.Exit(1)
	}
	fmt.Println("amqp091:", summary)
}

// where says what the suite runs on: a server to start, one that runs, or else the
// emulator.
type where struct {
	start            bool
	real, management string
}

// run runs the suite and returns a line that sums it up.
func run(ctx context.Context, on where, pattern string) (string, error) {
	started := time.Now()
	dir, err := os.MkdirTemp("", "amqp091")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	s, err := build(ctx, dir)
	if err != nil {
		return "", err
	}
	tests, err := s.list(ctx, cmp.Or(pattern, "."))
	if err != nil {
		return "", err
	}
	var t tally
	if pattern == "" {
		t.known(tests)
	}
	place := "the emulator"
	var jobs []job
	switch {
	case on.start:
		var version string
		if version, jobs, err = t.served(ctx, s, tests); err != nil {
			return "", err
		}
		place = "RabbitMQ " + version
	case on.real != "":
		place = "a real server"
		jobs = plan(onReal, tests, 1)
		for _, j := range jobs {
			t.job(ctx, s, j, &broker{url: on.real, management: on.management, patience: realPatience})
		}
	default:
		jobs = slices.Concat(plan(onEmulator, tests, shards), plan(onEmulatorTransient, tests, shards))
		t.emulated(ctx, s, jobs)
	}
	if len(jobs) == 0 {
		return "", fmt.Errorf("no test matches %q", pattern)
	}
	summary := fmt.Sprintf("%s on %s: %d passed, %d skipped and %d failed as expected, %d needed more than one try, %.0f s",
		module, place, t.passed, t.skipped, t.failed, t.retried, time.Since(started).Seconds())
	if err := errors.Join(append(t.wrong, ctx.Err())...); err != nil {
		return "", fmt.Errorf("%s; but:\n%w", summary, err)
	}
	return summary, nil
}

// shards is in how many processes the suite runs at once, each before an emulator
// or in a virtual host of its own: most of its time it sleeps.
const shards = 4

// job is tests that run in one process.
type job struct {
	column column
	tests  []string
}

// plan divides what is to run on a broker. Tests that should pass run in a few
// processes, so that the look for leaked goroutines at the end of each counts; each
// of the others runs by itself. Only the tests that behave otherwise there run
// where transient queues are permitted.
func plan(c column, tests []string, shards int) []job {
	together := make([]job, shards)
	var jobs []job
	recoveries := 0
	for _, test := range tests {
		e, listed := lookup(test)
		if c == onEmulatorTransient && (!listed || e.want[c] == e.want[onEmulator]) {
			continue
		}
		if e.want[c] == fail || e.want[c] == flaky {
			jobs = append(jobs, job{c, []string{test}})
			continue
		}
		// Some tests go on with the queues of those before them. The recovery tests,
		// which sleep most, don't, and are dealt out.
		j := &together[0]
		if shards > 1 && strings.HasPrefix(test, "TestConnectionRecovery") {
			j = &together[1+recoveries%(shards-1)]
			recoveries++
		}
		j.column, j.tests = c, append(j.tests, test)
	}
	return append(jobs, slices.DeleteFunc(together, func(j job) bool { return len(j.tests) == 0 })...)
}

// emulated runs jobs, some at once, each before an emulator of its own.
func (t *tally) emulated(ctx context.Context, s *suite, jobs []job) {
	t.sharded(jobs, func(_ int, j job) {
		b, err := emulate(rabbitmq.PermitTransientQueues(j.column == onEmulatorTransient))
		if err != nil {
			t.is(err)
			return
		}
		t.job(ctx, s, j, b)
		t.is(b.close())
	})
}

// sharded calls run for each job, some at once.
func (t *tally) sharded(jobs []job, run func(n int, j job)) {
	var running sync.WaitGroup
	slots := make(chan struct{}, shards)
	for n, j := range jobs {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			run(n, j)
		})
	}
	running.Wait()
}

// broker is where the tests find the server and its management plugin.
type broker struct {
	url, management string
	patience        time.Duration // with a process of tests
	close           func() error
}

// emulate starts the emulator, and a management interface before it, on free
// ports.
func emulate(options ...rabbitmq.Option) (*broker, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := rabbitmq.New(options...)
	m, err := manage(l)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(m) }()
	return &broker{
		url: "amqp://guest:guest@" + l.Addr().String() + "/", management: "http://guest:guest@" + m.addr(),
		patience: 2 * time.Minute,
		close: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return errors.Join(m.stop(), server.Close(ctx), <-served)
		},
	}, nil
}
