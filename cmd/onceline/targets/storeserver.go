package targets

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"strings"
	"sync"

	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/localstack"
)

// storeServer is a database that targets share: it is started for the first probe that
// needs it, and stopped when the last of the targets is closed.
type storeServer struct {
	start   func(context.Context, ...localstack.ServerOption) (*localstack.Database, error)
	options []localstack.ServerOption
	// prepare, which may be nil, makes what all stores in the database share.
	prepare func(ctx context.Context, address string) error

	mu      sync.Mutex
	targets int
	db      *localstack.Database
}

// shared keeps the server for t's probes while t is there.
func (s *storeServer) shared(t *conformance.Target) {
	start := t.Start
	t.Start = func(ctx context.Context) (*conformance.Instance, error) {
		i, err := start(ctx)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		s.targets++
		s.mu.Unlock()
		end := i.Close
		i.Close = func(ctx context.Context) error {
			var err error
			if end != nil {
				err = end(ctx)
			}
			return errors.Join(err, s.leave(ctx))
		}
		return i, nil
	}
}

func (s *storeServer) leave(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets--
	if s.targets > 0 || s.db == nil {
		return nil
	}
	db := s.db
	s.db = nil
	return db.Close(ctx)
}

var errNoServer = errors.New("no database server is started for embedded targets: onceline verify --local does so")

// make is a store's Make: a name on the server that nobody else has, in the URL's
// query.
func (s *storeServer) make(ctx context.Context) (string, func() error, error) {
	if s == nil {
		return "", nil, missing{errNoServer}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		db, err := s.start(ctx, s.options...)
		if err != nil {
			return "", nil, absent(err)
		}
		if s.prepare != nil {
			if err := s.prepare(ctx, db.URL()); err != nil {
				end, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseStop)
				defer cancel()
				return "", nil, errors.Join(err, db.Close(end))
			}
		}
		s.db = db
	}
	name := "probe_" + strings.ToLower(rand.Text())
	return join(s.db.URL(), "?"+url.Values{storeName: {name}}.Encode()), nil, nil
}

// storeName is the parameter of a store's address that is this suite's own.
const storeName = "onceline-store"

// nameIn takes the name out of a store's address.
func nameIn(address string) (rest *url.URL, name string, err error) {
	if rest, err = url.Parse(address); err != nil {
		return nil, "", err
	}
	query := rest.Query()
	name = query.Get(storeName)
	query.Del(storeName)
	rest.RawQuery = query.Encode()
	return rest, name, nil
}
