package targets

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/localstack"
)

// startServer bounds the start of a real server, whose first one may have to be
// brought from a registry.
const startServer = 5 * time.Minute

// Progress is told what the start of a target's server does.
type Progress func(target, step string)

// For returns what a server of that target reports its steps to.
func (p Progress) For(target string) localstack.ServerOption {
	return localstack.Progress(func(step string) {
		if p != nil {
			p(target, step)
		}
	})
}

// Local returns the targets that run what vendors and others ship, found on this
// machine or brought by a package manager. Where something is missing, the target
// is absent in the report.
func Local(p Progress) []conformance.Target {
	var ts []conformance.Target
	for _, of := range []func(Progress) []conformance.Target{localKafka, localRabbitMQ, localPubSub, localSQS, localNATS} {
		ts = append(ts, of(p)...)
	}
	redis := &storeServer{start: localstack.StartRedis, options: []localstack.ServerOption{p.For("redis")}}
	postgres := &storeServer{start: localstack.StartPostgres, options: []localstack.ServerOption{p.For("postgres")}}
	mariadb := &storeServer{start: localstack.StartMariaDB, options: []localstack.ServerOption{p.For("mariadb")}, prepare: prepareMySQL}
	spare := embeddedStores() // where neither database is installed
	for i := range spare {
		spare[i].Spare = true
	}
	for i := range ts {
		ts[i].Stores = slices.Concat(postgresStores(postgres), mysqlStores(mariadb), spare, leaseStores(redis))
		redis.shared(&ts[i])
		postgres.shared(&ts[i])
		mariadb.shared(&ts[i])
		if ts[i].StartWithin == 0 {
			ts[i].StartWithin = startServer
		}
	}
	return ts
}

// long is t, which takes minutes.
func long(t conformance.Target) conformance.Target {
	t.Long = true
	return t
}

// absent says of a start that failed because something isn't installed that the
// target is absent.
func absent(err error) error {
	if errors.Is(err, localstack.ErrNotInstalled) {
		return missing{err}
	}
	return err
}

// missing is an error that says what to install and nothing else.
type missing struct{ error }

func (m missing) Error() string {
	return strings.TrimPrefix(m.error.Error(), localstack.ErrNotInstalled.Error()+": ")
}

func (m missing) Is(target error) bool { return target == conformance.ErrAbsent }

func (m missing) Unwrap() error { return m.error }

// local is a start of a server that a target's probes share.
func local[E localstack.Emulator](start func(context.Context) (E, error), instance func(E) *conformance.Instance) func(context.Context) (*conformance.Instance, error) {
	return func(ctx context.Context) (*conformance.Instance, error) {
		e, err := start(ctx)
		if err != nil {
			return nil, absent(err)
		}
		return instance(e), nil
	}
}
