package localstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Database is a database server on a private port, for tests of what keeps its
// state in one. Its methods are safe for concurrent use.
type Database struct {
	server *Server
	url    string
	socket string
}

// URL returns the address for clients with user and database, of which neither asks
// for a password. It stays the same until Close.
func (d *Database) URL() string { return d.url }

// SocketDir returns the folder of PostgreSQL's Unix socket, which is the shortest way
// to it and knows no faults; "" where the folder's path is too long for one, and for
// other databases. Its name has the port that the server itself calls its own.
func (d *Database) SocketDir() string { return d.socket }

// Versions returns the version of the server.
func (d *Database) Versions() map[string]string { return d.server.Versions() }

// Pid returns the process ID of the server, 0 when it does not run.
func (d *Database) Pid() int { return d.server.Pid() }

// Restart stops the server cleanly and starts it again on its data. Clients lose
// their connections. After an error the database can only be closed.
func (d *Database) Restart(ctx context.Context) error { return d.server.Restart(ctx) }

// Kill ends the server by SIGKILL and starts it again on its data. After an error
// the database can only be closed.
func (d *Database) Kill(ctx context.Context) error { return d.server.Kill(ctx) }

// Freeze stops all bytes on all connections without closing any.
func (d *Database) Freeze() { d.server.Freeze() }

// Thaw ends Freeze.
func (d *Database) Thaw() { d.server.Thaw() }

// Slow makes all connections slow, until it is called again.
func (d *Database) Slow(s Slowness) { d.server.Slow(s) }

// Disconnect closes all client connections and returns how many there were.
func (d *Database) Disconnect() int { return d.server.Disconnect() }

// Close stops the server and removes its data. Closing again returns nil.
func (d *Database) Close(ctx context.Context) error { return d.server.Close(ctx) }

// openDatabase runs a database; url says where it is, from the address.
func openDatabase(ctx context.Context, name, version string, b *singleServer, url func(addr string) string) (*Database, error) {
	s, err := openSingle(ctx, &emulator{name: name, real: true, versions: map[string]string{name: version}}, b)
	if err != nil {
		return nil, err
	}
	return &Database{server: s, url: url(s.proxies[0].addr())}, nil
}

var versionNumber = regexp.MustCompile(`\d+(\.\d+)+`)

// findServer returns the path of the first program that is there, on PATH or in the
// folders of distributions, and its version.
func findServer(ctx context.Context, who, install string, programs ...string) (path, version string, err error) {
	for _, program := range programs {
		path, err = exec.LookPath(program)
		if err != nil && strings.Contains(program, "*") {
			if found, _ := filepath.Glob(program); len(found) > 0 {
				slices.SortFunc(found, func(a, b string) int { return newest(b) - newest(a) })
				path, err = found[0], nil
			}
		}
		if err == nil {
			out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
			if err != nil {
				return "", "", fmt.Errorf("%w: %s: %s does not run: %w", ErrNotInstalled, who, path, err)
			}
			return path, versionNumber.FindString(string(out)), nil
		}
	}
	return "", "", fmt.Errorf("%w: there is no %s: install %s, on Debian the package %s", ErrNotInstalled, programs[0], who, install)
}

// newest is the number in a path such as /usr/lib/postgresql/15/bin/postgres.
func newest(path string) int {
	for part := range strings.SplitSeq(path, string(filepath.Separator)) {
		if n, err := strconv.Atoi(part); err == nil {
			return n
		}
	}
	return 0
}

// unprivileged returns the user that a server runs as which refuses to be root, and
// gives it the folder; nil when this process is not root.
func unprivileged(dir string, names ...string) (*user.User, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range append(names, "nobody") {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		if err == nil {
			var gid int
			if gid, err = strconv.Atoi(u.Gid); err == nil {
				err = os.Chown(dir, uid, gid)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("localstack: %w", err)
		}
		return u, nil
	}
	return nil, errors.New("localstack: there is no user that a server could run as instead of root")
}

// prepare runs a program that ends by itself before the server's first start, when
// the mark in dir is missing, and makes the mark.
func prepare(dir string, c serverCommand) error {
	mark := filepath.Join(dir, "prepared")
	if _, err := os.Stat(mark); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), serverReady, fmt.Errorf("not done within %v", serverReady))
	defer cancel()
	p, err := c.run()
	if err != nil {
		return err
	}
	if err := p.wait(ctx); err != nil {
		return fmt.Errorf("localstack: %s: %w%s", c.name, err, p.said())
	}
	return os.WriteFile(mark, nil, 0o600)
}

// maxSocketPath is how long a Unix socket's path may be everywhere.
const maxSocketPath = 103

// StartPostgres runs the PostgreSQL that is installed on this machine, and returns
// when it takes clients; where there is none it returns an error that is
// [ErrNotInstalled]. The user onceline may do everything in the database postgres,
// without TLS. As PostgreSQL refuses to be root, it is run as the user postgres, or
// nobody, when this process is root.
func StartPostgres(ctx context.Context, options ...ServerOption) (*Database, error) {
	c := newServerConfig(options)
	path, version, err := findServer(ctx, "PostgreSQL", "postgresql", "postgres", "/usr/lib/postgresql/*/bin/postgres", "/usr/pgsql-*/bin/postgres")
	if err != nil {
		return nil, err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, fmt.Errorf("localstack: postgres: %w", err)
	}
	var socket string
	b := &singleServer{
		name: "PostgreSQL " + version, config: c, halt: (*serverProcess).interrupt, // does not wait for clients
		// Its processes make process groups of their own, so a kill doesn't reach them: they
		// end when they notice that the first one is gone, and until then the server refuses
		// to start.
		again: stillInUse,
		ready: func(ctx context.Context, port int) bool {
			const user = "user\x00onceline\x00database\x00postgres\x00\x00"
			hello := append([]byte{0, 0, 0, byte(8 + len(user)), 0, 3, 0, 0}, user...)
			return says(ctx, port, hello, func(b []byte) bool { return b[0] == 'R' })
		},
		command: func(dir string, port int) (serverCommand, error) {
			as, err := unprivileged(dir, "postgres")
			if err != nil {
				return serverCommand{}, err
			}
			data := filepath.Join(dir, "data")
			c := serverCommand{name: "initdb", path: filepath.Join(filepath.Dir(path), "initdb"), dir: dir, as: as, log: filepath.Join(dir, "server.log"),
				args: []string{"-D", data, "-U", "onceline", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"}}
			if err := prepare(dir, c); err != nil {
				return serverCommand{}, err
			}
			c.name, c.path = "postgres", path
			if len(filepath.Join(dir, ".s.PGSQL.65535")) <= maxSocketPath {
				socket = dir
			}
			c.args = []string{"-D", data, "-h", "127.0.0.1", "-p", fmt.Sprint(port), "-c", "unix_socket_directories=" + socket}
			return c, nil
		},
	}
	d, err := openDatabase(ctx, "postgres", version, b, func(addr string) string {
		return "postgres://onceline@" + addr + "/postgres?sslmode=disable"
	})
	if err == nil {
		d.socket = socket
	}
	return d, err
}

// StartMariaDB runs the MariaDB that is installed on this machine, and returns when
// it takes clients; where there is none it returns an error that is
// [ErrNotInstalled]. The user root may do everything in the database onceline.
func StartMariaDB(ctx context.Context, options ...ServerOption) (*Database, error) {
	c := newServerConfig(options)
	path, version, err := findServer(ctx, "MariaDB", "mariadb-server", "mariadbd", "/usr/sbin/mariadbd", "/usr/libexec/mariadbd")
	if err != nil {
		return nil, err
	}
	b := &singleServer{
		name: "MariaDB " + version, config: c,
		ready: func(ctx context.Context, port int) bool {
			return says(ctx, port, nil, func(b []byte) bool { return len(b) > 4 && b[4] == 10 }) // its protocol's version
		},
		command: func(dir string, port int) (serverCommand, error) {
			as, err := unprivileged(dir, "mysql")
			if err != nil {
				return serverCommand{}, err
			}
			data, init := filepath.Join(dir, "data"), filepath.Join(dir, "init.sql")
			// What installs a database is a script that looks for its files in the
			// places of the distribution; the server can do it by itself.
			sql := "CREATE DATABASE IF NOT EXISTS onceline;\n"
			if err := os.WriteFile(init, []byte(sql), 0o644); err != nil {
				return serverCommand{}, fmt.Errorf("localstack: mariadb: %w", err)
			}
			// Each MariaDB that starts removes what looks like a temporary table from its
			// folder for them, also those of another server that shares it.
			tmp := filepath.Join(dir, "tmp")
			if err := os.MkdirAll(tmp, 0o777); err != nil {
				return serverCommand{}, fmt.Errorf("localstack: mariadb: %w", err)
			}
			if as != nil {
				if err := os.Chmod(tmp, 0o777); err != nil { // whatever the umask says
					return serverCommand{}, fmt.Errorf("localstack: mariadb: %w", err)
				}
			}
			c := serverCommand{name: "mariadb-install-db", dir: dir, as: as, log: filepath.Join(dir, "server.log"), args: []string{
				"--no-defaults", "--tmpdir=" + tmp, "--datadir=" + data, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"}}
			if c.path, err = exec.LookPath("mariadb-install-db"); err != nil {
				return serverCommand{}, fmt.Errorf("%w: there is no mariadb-install-db on PATH", ErrNotInstalled)
			}
			if base := filepath.Dir(filepath.Dir(path)); base != "/usr" {
				c.args = append(c.args, "--basedir="+base)
			}
			if err := prepare(dir, c); err != nil {
				return serverCommand{}, err
			}
			c.name, c.path = "mariadb", path
			c.args = []string{"--no-defaults", "--tmpdir=" + tmp, "--datadir=" + data, "--bind-address=127.0.0.1", fmt.Sprint("--port=", port),
				"--socket=" + filepath.Join(dir, "socket"), "--pid-file=" + filepath.Join(dir, "pid"), "--init-file=" + init, "--skip-name-resolve"}
			if base := filepath.Dir(filepath.Dir(path)); base != "/usr" {
				c.args = append(c.args, "--basedir="+base)
			}
			return c, nil
		},
	}
	return openDatabase(ctx, "mariadb", version, b, func(addr string) string { return "mysql://root@" + addr + "/onceline" })
}

// says sends a server a few bytes and asks about those that it says then.
func says(ctx context.Context, port int, hello []byte, is func([]byte) bool) bool {
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, "tcp", loopback(port))
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if len(hello) > 0 {
		if _, err := c.Write(hello); err != nil {
			return false
		}
	}
	b := make([]byte, 64)
	n, err := io.ReadAtLeast(c, b, 5)
	return err == nil && is(b[:n])
}

// stillInUse reports whether the last words of a PostgreSQL say that processes of the one
// before are there. Those may speak after it.
func stillInUse(said string) bool {
	lines := slices.DeleteFunc(strings.Split(said, "\n"), func(line string) bool { return strings.Contains(line, "unexpected postmaster exit") })
	return strings.Contains(strings.Join(lines[max(0, len(lines)-2):], "\n"), "still in use")
}
