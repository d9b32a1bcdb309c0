package ratios

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/postgres"
	"github.com/onceline/onceline/localstack"
)

// roundTrip is what each round trip takes longer where the database is far away.
const roundTrip = 2700 * time.Microsecond

// postgresGroup measures the ways to apply messages, and the package's own part.
func postgresGroup(o *Options) group {
	single := func(x *postgresBench) way { return x.singles(100) }
	beside := func(parts int, base, ours func(x *postgresBench) way) func(context.Context, *postgresBench) (sample, error) {
		return func(ctx context.Context, x *postgresBench) (sample, error) {
			return pairs(ctx, o.Pairs, parts, base(x), ours(x))
		}
	}
	// How much longer ours takes than by hand.
	longer := func(byHand, ours func(x *postgresBench) way) func(context.Context, *postgresBench) (sample, error) {
		return func(ctx context.Context, x *postgresBench) (sample, error) {
			s, err := pairs(ctx, o.Pairs, 10, byHand(x), ours(x))
			for i := range s.values {
				s.values[i] = 1 / s.values[i]
			}
			return s, err
		}
	}
	return &groupOf[*postgresBench]{"PostgreSQL", func(ctx context.Context, o *Options) (*postgresBench, error) { return newPostgresBench(ctx, 0) },
		[]measurement[*postgresBench]{
			{Promise{Name: "postgres.pipelined", What: "inbox, batches of 100 pipelined, beside one message per transaction", Bound: 15, Unit: "×"},
				beside(1, single, func(x *postgresBench) way { return x.pipelined(100, 10, false) })},
			{Promise{Name: "postgres.sequential", What: "inbox, batches of 100, one effect after the other, beside one message per transaction", Bound: 5, Unit: "×"},
				beside(1, single, func(x *postgresBench) way { return x.sequential(100, 4) })},
			{Promise{Name: "postgres.position", What: "stored position, batches of 100 pipelined, beside one message per transaction by the inbox", Bound: 20, Unit: "×"},
				beside(1, single, func(x *postgresBench) way { return x.position(100, 15) })},
			{Promise{Name: "postgres.overhead", What: "time beside the same SQL by hand with pgx, one message per transaction", Bound: 1.1, Most: true, Unit: "×"},
				longer(func(x *postgresBench) way { return x.byHandSingly(20) }, func(x *postgresBench) way { return x.singles(20) })},
			{Promise{Name: "postgres.overhead-pipelined", What: "time beside the same SQL by hand with pgx, batches of 100 pipelined", Bound: 1.1, Most: true, Unit: "×"},
				longer(func(x *postgresBench) way { return x.byHandPipelined(100, 3) }, func(x *postgresBench) way { return x.pipelined(100, 3, false) })},
			{Promise{Name: "postgres.bad", What: "rate of batches of 100 pipelined that is left when 1 % of the effects fail", Bound: 0.6, Unit: "×"},
				beside(5, func(x *postgresBench) way { return x.pipelined(100, 4, false) }, func(x *postgresBench) way { return x.pipelined(100, 4, true) })},
		}}
}

// farGroup measures the same where each round trip takes longer.
func farGroup(o *Options) group {
	return &groupOf[*postgresBench]{"PostgreSQL far away", func(ctx context.Context, o *Options) (*postgresBench, error) { return newPostgresBench(ctx, roundTrip) },
		[]measurement[*postgresBench]{
			{Promise{Name: "postgres.far", What: fmt.Sprintf("inbox, batches of 100 pipelined, beside one message per transaction, each round trip %v longer", roundTrip), Bound: 60, Unit: "×"},
				func(ctx context.Context, x *postgresBench) (sample, error) {
					return pairs(ctx, o.Pairs, 1, x.singles(10), x.pipelined(100, 6, false))
				}},
		}}
}

// postgresServer is a PostgreSQL of ours and connections to it.
type postgresServer struct {
	server *localstack.Database
	pool   *pgxpool.Pool
}

// startPostgres starts one. The pool goes past the proxy for faults, which would be on
// the way of every statement: by the server's Unix socket, as what runs beside it does,
// or, where what the server says is to come later, by TCP.
func startPostgres(ctx context.Context, later time.Duration) (p *postgresServer, err error) {
	p = new(postgresServer)
	if p.server, err = localstack.StartPostgres(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	var port string
	if port, err = ownPort(ctx, p.server.URL()); err != nil {
		return p, err
	}
	u, err := url.Parse(p.server.URL())
	if err != nil {
		return p, err
	}
	u.Host = net.JoinHostPort("127.0.0.1", port)
	if dir := p.server.SocketDir(); later == 0 && dir != "" {
		q := u.Query()
		q.Set("host", dir)
		q.Set("port", port)
		u.Host, u.RawQuery = "", q.Encode()
	}
	config, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		return p, err
	}
	config.MaxConns = 6
	if later > 0 {
		config.ConnConfig.DialFunc = slowly(later)
	}
	p.pool, err = pgxpool.NewWithConfig(ctx, config)
	return p, err
}

// ownPort asks the server behind a proxy where it listens.
func ownPort(ctx context.Context, url string) (port string, err error) {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	err = c.QueryRow(ctx, "SELECT current_setting('port')").Scan(&port)
	return port, errors.Join(err, c.Close(ctx))
}

func (p *postgresServer) close() error {
	if p.pool != nil {
		p.pool.Close()
	}
	return p.server.Close(context.Background())
}

func (p *postgresServer) exec(ctx context.Context, queries ...string) error {
	for _, query := range queries {
		if _, err := p.pool.Exec(ctx, query); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return nil
}

// postgresBench is a store beside accounts, which are what effects change.
type postgresBench struct {
	*postgresServer
	s    *postgres.Store
	in   *dedup.Inbox[pgx.Tx]
	pos  *dedup.Position[pgx.Tx]
	next int
	last int64
}

const accounts = 10_000

func newPostgresBench(ctx context.Context, later time.Duration) (*postgresBench, error) {
	server, err := startPostgres(ctx, later)
	if err != nil {
		return nil, err
	}
	x := &postgresBench{postgresServer: server, last: dedup.Start}
	if err := x.prepare(ctx); err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

func (x *postgresBench) prepare(ctx context.Context) (err error) {
	if x.s, err = postgres.New(x.pool, postgres.Options{}); err != nil {
		return err
	}
	if err := x.s.Migrate(ctx); err != nil {
		return err
	}
	if err := x.s.Verify(ctx); err != nil {
		return err
	}
	x.in, x.pos = dedup.New[pgx.Tx](x.s, "c", dedup.Options{}), dedup.NewPosition[pgx.Tx](x.s, "c", dedup.Options{})
	return x.exec(ctx, "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50)",
		fmt.Sprintf("INSERT INTO account (id) SELECT generate_series(0, %d)", accounts-1), "VACUUM ANALYZE account", "CHECKPOINT")
}

// ids are of messages that never came before.
func (x *postgresBench) ids(n int) []int {
	ids := make([]int, n)
	for i := range ids {
		x.next++
		ids[i] = x.next
	}
	return ids
}

func key(id int) dedup.Key { return dedup.Key{ID: "order-" + strconv.Itoa(id) + ":paid:v1"} }

// account spreads the messages over the accounts.
func account(id int) int { return id * 7919 % accounts }

// What an effect does.
const update = "UPDATE account SET balance = balance + 1 WHERE id = $1"

func effect(ctx context.Context, tx pgx.Tx, id int) error {
	_, err := tx.Exec(ctx, update, account(id))
	return err
}

func queue(b *pgx.Batch, id int) { b.Queue(update, account(id)) }

// applied is an error if one of the results isn't.
func applied(results []dedup.Result, err error) error {
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Outcome != dedup.Applied {
			return fmt.Errorf("a message is %v: %w", r.Outcome, r.Err)
		}
	}
	return nil
}

// singles are messages one by one, in a transaction each.
func (x *postgresBench) singles(n int) way {
	return way{n, func(ctx context.Context) error {
		for _, id := range x.ids(n) {
			outcome, err := x.in.Once(ctx, key(id), func(ctx context.Context, tx pgx.Tx) error { return effect(ctx, tx, id) })
			if err := applied([]dedup.Result{{Outcome: outcome}}, err); err != nil {
				return err
			}
		}
		return nil
	}}
}

func (x *postgresBench) sequential(size, times int) way {
	return way{size * times, func(ctx context.Context) error {
		for range times {
			if err := applied(dedup.OnceBatch(ctx, x.in, x.ids(size), key, effect)); err != nil {
				return err
			}
		}
		return nil
	}}
}

// pipelined are batches of effects that are queued; with bad, one in a hundred of them,
// at random places, divides by zero.
func (x *postgresBench) pipelined(size, times int, withBad bool) way {
	bad := func(id int) bool { return withBad && uint64(id)*0x9E3779B97F4A7C15>>32%100 == 0 }
	return way{size * times, func(ctx context.Context) error {
		for range times {
			ids := x.ids(size)
			results, err := postgres.OncePipelined(ctx, x.in, ids, key, func(b *pgx.Batch, id int) {
				if bad(id) {
					b.Queue(update+" AND 1/($1 - id) > 0", account(id))
					return
				}
				queue(b, id)
			})
			if !withBad {
				if err := applied(results, err); err != nil {
					return err
				}
				continue
			}
			for i, r := range results {
				if (r.Outcome == dedup.Failed) != bad(ids[i]) || r.Outcome != dedup.Failed && r.Outcome != dedup.Applied {
					return fmt.Errorf("a message is %v: %w", r.Outcome, r.Err)
				}
			}
		}
		return nil
	}}
}

func (x *postgresBench) position(size, times int) way {
	at := dedup.Partition{Topic: "orders", Name: "0"}
	return way{size * times, func(ctx context.Context) error {
		for range times {
			offsets := make([]int64, size)
			for i := range offsets {
				offsets[i] = x.last + 1 + int64(i)
			}
			last, err := postgres.AppliedFromPipelined(ctx, x.pos, at, x.last, offsets, func(o int64) int64 { return o },
				func(b *pgx.Batch, o int64) { queue(b, int(o)) })
			if err != nil {
				return err
			}
			x.last = last
		}
		return nil
	}}
}
