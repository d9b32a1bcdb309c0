package localstack_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/localstack"
)

// startDatabase starts a database, and closes it at the test's end.
func startDatabase(t *testing.T, start func(context.Context, ...localstack.ServerOption) (*localstack.Database, error)) *localstack.Database {
	t.Helper()
	local(t)
	var told steps
	began := time.Now()
	d, err := start(t.Context(), localstack.Progress(told.add))
	if err != nil {
		t.Fatal(err)
	}
	told.saw(t, "starting", "ready")
	t.Logf("%v: ready in %v, memory %s", d.Versions(), time.Since(began).Round(time.Millisecond), resident(d.Pid()))
	t.Cleanup(func() {
		pid := d.Pid()
		if err := d.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
		gone(t, pid)
	})
	return d
}

// keeps checks that what was written before is there after a restart and a kill.
func keeps(t *testing.T, d *localstack.Database, read func() string, want string) {
	t.Helper()
	for name, do := range map[string]func(context.Context) error{"restart": d.Restart, "kill": d.Kill} {
		pid, began := d.Pid(), time.Now()
		if err := do(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Logf("%s took %v", name, time.Since(began).Round(time.Millisecond))
		gone(t, pid)
		if got := read(); got != want {
			t.Errorf("after %s: %q, want %q", name, got, want)
		}
	}
}

// ask runs a client program and returns what it writes.
func ask(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestPostgres(t *testing.T) {
	d := startDatabase(t, localstack.StartPostgres)
	query := func(sql string) string { return ask(t, "psql", "-XAtq", d.URL(), "-c", sql) }
	query("CREATE TABLE t (v int); INSERT INTO t VALUES (42)")
	keeps(t, d, func() string { return query("SELECT v FROM t") }, "42")
	port := query("SHOW port")
	if got := ask(t, "psql", "-XAtq", "-h", d.SocketDir(), "-p", port, "-U", "onceline", "-d", "postgres", "-c", "SELECT v FROM t"); got != "42" {
		t.Errorf("by the socket in %q: %q", d.SocketDir(), got)
	}
}

func TestMariaDB(t *testing.T) {
	d := startDatabase(t, localstack.StartMariaDB)
	u, err := url.Parse(d.URL())
	if err != nil {
		t.Fatal(err)
	}
	query := func(sql string) string {
		return ask(t, "mariadb", "--no-defaults", "-h", u.Hostname(), "-P", u.Port(), "-u", "root", "-N", "-B", "onceline", "-e", sql)
	}
	query("CREATE TABLE t (v int); INSERT INTO t VALUES (42)")
	keeps(t, d, func() string { return query("SELECT v FROM t") }, "42")
}

func TestRedis(t *testing.T) {
	d := startDatabase(t, localstack.StartRedis)
	command := func(line string) string {
		c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(d.URL(), "redis://"), "/0"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte(line + "\r\n")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b[:n]))
	}
	if got := command("SET k 42"); got != "+OK" {
		t.Fatal(got)
	}
	keeps(t, d, func() string { return command("GET k") }, "$2\r\n42")
}

// TestRedisCluster: three nodes share the slots, tell clients the addresses of the
// proxies, and are whole again with what they had after one was killed.
func TestRedisCluster(t *testing.T) {
	local(t)
	if _, err := localstack.StartRedisCluster(t.Context(), 2); err == nil {
		t.Error("two nodes are no cluster")
	}
	c, err := localstack.StartRedisCluster(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	say := func(addr, line string) string {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(line + "\r\n")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 200)
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b[:n]))
	}
	addrs := c.Addresses()
	for round, line := range []string{"SET k 42", "GET k"} {
		moved := 0
		for _, addr := range addrs { // the slot of k is 7629: the middle node's
			switch said := say(addr, line); {
			case said == "-MOVED 7629 "+addrs[1]:
				moved++
			case addr != addrs[1] || said != []string{"+OK", "$2\r\n42"}[round]:
				t.Errorf("%s: %q", line, said)
			}
		}
		if moved != 2 {
			t.Errorf("%d nodes send clients on", moved)
		}
		if err := c.Nodes()[1].Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Await(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDatabasesAreMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := localstack.StartRedis(t.Context()); !errors.Is(err, localstack.ErrNotInstalled) {
		t.Errorf("without Redis: %v", err)
	}
}
