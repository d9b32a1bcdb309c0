package crashes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/onceline/onceline/localstack"
)

// server is a database that cells share, each under a name of its own.
type server struct {
	address string
	db      *localstack.Database // nil for a folder
	own     *database            // this process's; nil of Redis
	dir     string

	mu      sync.Mutex
	members int // cells that may ask for a restart
	waiting []chan error
	times   int
}

// startServer starts one, and makes what stores need in it. name is "" for SQLite.
func startServer(ctx context.Context, name string, progress func(string)) (*server, error) {
	start, known := map[string]func(context.Context, ...localstack.ServerOption) (*localstack.Database, error){
		Postgres: localstack.StartPostgres, MariaDB: localstack.StartMariaDB, Redis: localstack.StartRedis}[name]
	if !known {
		return startFolder(ctx)
	}
	dir, err := makeFolder()
	if err != nil {
		return nil, err
	}
	db, err := start(ctx, localstack.Progress(progress), localstack.ServerDataDir(dir))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &server{address: db.URL(), db: db, dir: dir}
	open := map[string]func(context.Context, string, *wires) (*database, error){Postgres: openPostgres, MariaDB: openMariaDB}[name]
	if open != nil {
		if s.own, err = open(ctx, s.address, nil); err == nil {
			err = s.own.prepare(ctx)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// makeFolder makes a folder for a database, in memory where there is such a place: what
// a killed process had committed is there too, and only a machine that loses its power
// would miss the disk, for which tens of thousands of commits would wait.
func makeFolder() (string, error) {
	const memory = "/dev/shm" // of Linux
	dir, err := os.MkdirTemp(memory, "onceline-crashes-")
	if err != nil {
		dir, err = os.MkdirTemp("", "onceline-crashes-")
	}
	return dir, err
}

// startFolder is a database of SQLite.
func startFolder(ctx context.Context) (*server, error) {
	dir, err := makeFolder()
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, address: filepath.Join(dir, "effects.db")}
	if s.own, err = openSQLite(ctx, s.address, nil); err == nil {
		err = s.own.prepare(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *server) close() error {
	var errs []error
	if s.own != nil {
		errs = append(errs, s.own.close())
	}
	if s.db != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		errs = append(errs, s.db.Close(ctx))
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// join makes a cell one of those that a restart waits for.
func (s *server) join(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members += n
}

// leave is called by a cell that asks for no more restarts.
func (s *server) leave(ctx context.Context) {
	s.mu.Lock()
	s.members--
	s.mu.Unlock()
	s.restartIfAll(ctx)
}

// restart restarts the server once all cells have asked for it, so that they share one.
func (s *server) restart(ctx context.Context) error {
	done := make(chan error, 1)
	s.mu.Lock()
	s.waiting = append(s.waiting, done)
	s.mu.Unlock()
	s.restartIfAll(ctx)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the database's restart: %w", context.Cause(ctx))
	}
}

func (s *server) restartIfAll(ctx context.Context) {
	s.mu.Lock()
	if len(s.waiting) == 0 || len(s.waiting) < s.members {
		s.mu.Unlock()
		return
	}
	all := s.waiting
	s.waiting = nil
	s.times++
	kill := s.times%2 == 1
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	how := s.db.Restart
	if kill {
		how = s.db.Kill
	}
	err := how(ctx)
	for _, done := range all {
		done <- err
	}
}
