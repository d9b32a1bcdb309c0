package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/onceline/onceline/localstack"
)

// serve starts the RabbitMQ that is installed on this machine, with the management
// plugin, which the tests ask for the connections there are.
func serve(ctx context.Context) (*broker, string, error) {
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	started := time.Now()
	e, err := localstack.StartRabbitMQServer(ctx, localstack.RabbitMQPlugins("rabbitmq_management"),
		localstack.RabbitMQConfig(map[string]string{
			"management.tcp.ip":   "127.0.0.1",
			"management.tcp.port": strconv.Itoa(port),
			// How often the server counts what the plugin tells; the tests wait for it.
			"collect_statistics_interval": "1000",
		}))
	if err != nil {
		return nil, "", err
	}
	fmt.Printf("RabbitMQ %s: ready in %.0f s\n", e.Versions()["rabbitmq"], time.Since(started).Seconds())
	return &broker{
		// Around the fault proxy: nothing of ours is between the tests and the server.
		url:        "amqp://guest:guest@" + e.DirectURL()[len(e.Name()+"://"):] + "/",
		management: "http://guest:guest@127.0.0.1:" + strconv.Itoa(port),
		patience:   realPatience,
		close: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			return e.Close(ctx)
		},
	}, e.Versions()["rabbitmq"], nil
}

// inVHost returns the broker as tests see it that have a virtual host of their own,
// so that others may run beside them.
func (b *broker) inVHost(ctx context.Context, name string) (*broker, error) {
	if err := b.manage(ctx, "/api/vhosts/"+name, ""); err != nil {
		return nil, err
	}
	if err := b.manage(ctx, "/api/permissions/"+name+"/guest", `{"configure":".*","write":".*","read":".*"}`); err != nil {
		return nil, err
	}
	own := *b
	own.url += name
	return &own, nil
}

// manage puts something to the management plugin.
func (b *broker) manage(ctx context.Context, path, body string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, b.management+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		said, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10)) // for the error alone
		return fmt.Errorf("%s: %s: %s", path, answer.Status, said)
	}
	return nil
}

// realPatience is for how long the tests may run on a real server.
const realPatience = 8 * time.Minute

// served runs the tests on a server that it starts, some processes at once. It
// returns the server's version and what ran.
func (t *tally) served(ctx context.Context, s *suite, tests []string) (string, []job, error) {
	b, version, err := serve(ctx)
	if err != nil {
		return "", nil, err
	}
	jobs := plan(onReal, tests, shards)
	t.sharded(jobs, func(n int, j job) {
		own, err := b.inVHost(ctx, fmt.Sprintf("tests-%d", n))
		if err != nil {
			t.is(err)
			return
		}
		t.job(ctx, s, j, own)
	})
	t.is(b.close())
	return version, jobs, nil
}

// freePort returns a port of 127.0.0.1 that nobody listens on. It is one below those
// that systems give to clients' connections, which could take it before the server
// listens.
func freePort() (int, error) {
	var err error
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(10000+rand.IntN(6000)))); err == nil {
			return l.Addr().(*net.TCPAddr).Port, l.Close()
		}
	}
	return 0, err
}
