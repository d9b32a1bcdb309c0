package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onceline/onceline/dedup/audit"
)

// sources are the databases and files of an audit.
type sources struct {
	timeout time.Duration
	said    *steps
	open    map[string]*audit.Database // by address
	dir     string                     // of the temporary database
	files   *audit.Database
	tables  int
}

func (s *sources) close() error {
	var errs []error
	for _, d := range s.open {
		errs = append(errs, d.DB.Close())
	}
	if s.files != nil {
		errs = append(errs, s.files.DB.Close())
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// formatOf is the format of a source that is a file of rows, "" for a database.
func formatOf(source string) audit.Format {
	if strings.Contains(source, "://") {
		return ""
	}
	path, _, _ := strings.Cut(source, "#")
	switch strings.ToLower(filepath.Ext(path)) {
	case ".jsonl", ".ndjson":
		return audit.Lines
	case ".csv":
		return audit.CSV
	}
	return ""
}

// table opens the source of a table, which flag names; a file is loaded.
func (s *sources) table(ctx context.Context, flag, source string, t *audit.Table) (err error) {
	if formatOf(source) != "" {
		return s.load(ctx, flag, source, t)
	}
	t.In, err = s.database(ctx, flag, source)
	return err
}

// load puts a file's rows into the temporary database.
func (s *sources) load(ctx context.Context, flag, source string, t *audit.Table) error {
	path, where, some := strings.Cut(source, "#")
	file := audit.File{Format: formatOf(source)}
	var ok bool
	if file.Column, file.Is, ok = strings.Cut(where, "="); some && (!ok || file.Column == "") {
		return fmt.Errorf("audit: --%s %s: it is FILE or FILE#COLUMN=TEXT", flag, source)
	}
	in, err := os.Open(path)
	if err != nil {
		return runError{fmt.Errorf("--%s: %w", flag, err)}
	}
	defer in.Close()
	if s.files == nil {
		if s.dir, err = os.MkdirTemp("", "onceline-audit-"); err != nil {
			return runError{err}
		}
		db, err := openSQLiteFile(filepath.Join(s.dir, "rows.db"), url.Values{"_pragma": {"journal_mode(MEMORY)", "synchronous(OFF)", "busy_timeout(5000)"}})
		if err != nil {
			return runError{err}
		}
		s.files = &audit.Database{DB: db, Dialect: audit.SQLite, Name: "the files", Timeout: s.timeout}
	}
	s.tables++
	s.said.step("reading " + path)
	err = audit.Load(ctx, s.files, fmt.Sprint("rows", s.tables), t, in, file, func(rows int64) { s.said.step(fmt.Sprintf("reading %s: %s rows", path, grouped(rows))) })
	switch {
	case errors.Is(err, audit.ErrTable):
		return fmt.Errorf("--%s %s: %w", flag, path, err)
	case err != nil:
		return runError{fmt.Errorf("--%s %s: %w", flag, path, err)}
	}
	return nil
}

// database opens a database, once for each address.
func (s *sources) database(ctx context.Context, flag, source string) (*audit.Database, error) {
	if d := s.open[source]; d != nil {
		return d, nil
	}
	scheme, rest, ok := strings.Cut(source, "://")
	var d *audit.Database
	var err error
	switch {
	case ok && (scheme == "postgres" || scheme == "postgresql"):
		d, err = auditPostgres(flag, source)
	case ok && (scheme == "mysql" || scheme == "mariadb"):
		d, err = auditMySQL(flag, source, s.timeout)
	case ok && scheme == "sqlite":
		if rest, err = url.PathUnescape(rest); err != nil {
			return nil, fmt.Errorf("audit: --%s: sqlite://PATH with an escape that isn't one", flag)
		}
		d, err = auditSQLite(flag, rest)
	case ok: // it may hold a password
		return nil, fmt.Errorf("audit: --%s: neither postgres://…, mysql://…, sqlite://PATH nor a path", flag)
	default:
		d, err = auditSQLite(flag, source)
	}
	if err != nil {
		return nil, err
	}
	d.Timeout = s.timeout
	s.open[source] = d
	ctx, cancel := context.WithTimeout(ctx, min(s.timeout, 30*time.Second))
	defer cancel()
	if err := d.DB.PingContext(ctx); err != nil {
		return nil, runError{fmt.Errorf("--%s: %s: %w", flag, d.Name, err)}
	}
	return d, nil
}

func auditPostgres(flag, source string) (*audit.Database, error) {
	config, err := pgx.ParseConfig(source)
	if err != nil { // its text may show parts of a password that isn't escaped
		return nil, fmt.Errorf("audit: --%s: not the address of a PostgreSQL database", flag)
	}
	return &audit.Database{DB: stdlib.OpenDB(*config), Dialect: audit.Postgres, Name: fmt.Sprintf("postgres://%s:%d/%s", config.Host, config.Port, config.Database)}, nil
}

// auditMySQL opens what relay opens by such an address, and sockets. Statements that take
// as long as they may aren't cut by a timeout of the address.
func auditMySQL(flag, source string, timeout time.Duration) (*audit.Database, error) {
	not := fmt.Errorf("audit: --%s: not mysql://USER:PASSWORD@HOST/DATABASE, escaped as a URL is, with the driver's parameters or socket=PATH", flag)
	u, err := url.Parse(source)
	if err != nil { // its text may show parts of a password
		return nil, not
	}
	query := u.Query()
	socket := query.Get("socket")
	query.Del("socket")
	if u.RawQuery = query.Encode(); socket != "" && u.Host == "" {
		u.Host = "localhost"
	}
	config, err := mysqlConfig(u.String())
	if err != nil {
		return nil, not
	}
	if socket != "" {
		config.Net, config.Addr = "unix", socket
	}
	for name := range config.Params { // which the driver takes for variables of the session
		if strings.HasPrefix(name, "ssl") {
			return nil, fmt.Errorf("audit: --%s: mysql:// takes tls=true|false|preferred|skip-verify, not %s", flag, name)
		}
	}
	if config.TLSConfig == "" {
		config.TLSConfig = "preferred" // where the server has it
	}
	config.ReadTimeout = max(config.ReadTimeout, timeout+30*time.Second)
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, not
	}
	return &audit.Database{DB: sql.OpenDB(connector), Dialect: audit.MySQL, Name: fmt.Sprintf("mysql://%s/%s", config.Addr, config.DBName)}, nil
}

func auditSQLite(flag, path string) (*audit.Database, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, runError{fmt.Errorf("--%s: %w", flag, err)}
	}
	db, err := openSQLiteFile(path, url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(5000)"}})
	if err != nil {
		return nil, runError{fmt.Errorf("--%s: %w", flag, err)}
	}
	return &audit.Database{DB: db, Dialect: audit.SQLite, Name: path}, nil
}

func openSQLiteFile(path string, query url.Values) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+query.Encode())
}

// steps tells what is done: each step on a terminal, elsewhere what takes long.
type steps struct {
	w    *lineWriter
	live bool

	mu    sync.Mutex
	what  string
	begin time.Time
	stop  chan struct{}
	done  sync.WaitGroup
}

// stillEvery is the time after which what goes on is told.
const stillEvery = 10 * time.Second

func newSteps(w io.Writer) *steps {
	s := &steps{w: &lineWriter{to: w}, stop: make(chan struct{})}
	_, s.live = terminal(fileOf(w))
	s.done.Go(func() {
		t := time.NewTicker(stillEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				s.mu.Lock()
				what, took := s.what, time.Since(s.begin)
				s.mu.Unlock()
				if what != "" && took >= stillEvery {
					s.w.printf("%s, %.0f s", what, took.Seconds())
				}
			case <-s.stop:
				return
			}
		}
	})
	return s
}

func (s *steps) step(what string) {
	s.mu.Lock()
	s.what, s.begin = what, time.Now()
	s.mu.Unlock()
	if s.live {
		s.w.printf("%s", what)
	}
}

// end ends it; again does nothing.
func (s *steps) end() {
	s.mu.Lock()
	ended := s.what == "ended"
	s.what = "ended"
	s.mu.Unlock()
	if !ended {
		close(s.stop)
		s.done.Wait()
	}
}
