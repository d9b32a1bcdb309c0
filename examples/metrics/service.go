package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/otel"
	"github.com/onceline/onceline/dedup/sqlite"
)

const (
	topic        = "orders"
	subscription = "orders/billing"
)

// service is a shop and its billing, in one process.
type service struct {
	provider  *sdkmetric.MeterProvider
	telemetry *otel.Telemetry
	metrics   http.Handler
	stops     []func()

	store  *sqlite.Store
	broker *memory.Broker
	conn   broker.Conn
	rcv    broker.Receiver
	prices broker.Publisher
	outbox *dedup.Outbox[*sql.Tx]
	relay  *dedup.Relay
	inbox  *dedup.Inbox[*sql.Tx]
	calls  *dedup.Calls
}

func open(ctx context.Context, db string) (s *service, err error) {
	s = &service{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	// OpenTelemetry's side: a registry that is scraped.
	registry := prom.NewRegistry()
	exporter, err := prometheus.New(prometheus.WithRegisterer(registry))
	if err != nil {
		return s, err
	}
	s.provider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	s.metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	t, err := otel.New(otel.WithMeterProvider(s.provider))
	if err != nil {
		return s, err
	}
	s.telemetry = t

	// The store, and what is exported of it.
	if s.store, err = sqlite.Open(ctx, db, sqlite.Options{}); err != nil {
		return s, err
	}
	if err := s.store.Transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS booking (order_id TEXT, amount INTEGER)")
		return err
	}); err != nil {
		return s, err
	}
	s.inbox = dedup.New(s.store, "billing", dedup.Options{Took: t.Took(otel.Inbox, "billing")})
	if s.calls, err = dedup.NewCalls(s.store, "mail", dedup.CallOptions{Took: t.Took(otel.Calls, "mail")}); err != nil {
		return s, err
	}
	s.watch(t.Inbox(s.inbox), t.Calls(s.calls), t.Outbox(topic, s.store), t.DuplicatesApplied("billing", s.bookedTwice))

	// The broker.
	s.broker = memory.New()
	s.conn = s.broker.Conn()
	e := broker.Entity{Topic: topic, Subscription: subscription, DeadLetter: "orders.dead", Window: time.Minute, Lease: 30 * time.Second, MaxDeliveries: 10}
	if err := s.conn.Ensure(ctx, e); err != nil {
		return s, err
	}
	pub, err := s.conn.OpenPublisher(ctx, topic)
	if err != nil {
		return s, err
	}
	if s.rcv, err = s.conn.OpenReceiver(ctx, subscription, t.Rebalances(subscription)); err != nil {
		return s, err
	}
	s.relay = dedup.NewRelay(s.store, topic, pub, dedup.RelayOptions{Published: t.Published(topic)})
	s.watch(t.Relay(s.relay))
	// Who publishes without an outbox: each attempt is seen with its age.
	if err := s.conn.Ensure(ctx, broker.Entity{Topic: "prices", Window: time.Minute}); err != nil {
		return s, err
	}
	prices, err := s.conn.OpenPublisher(ctx, "prices")
	if err != nil {
		return s, err
	}
	s.prices = broker.Retry(t.Publisher(prices, "prices"), broker.RetryPolicy{})
	s.outbox = dedup.NewOutbox(s.store, topic, dedup.OutboxOptions{Wake: s.relay.Wake})
	return s, nil
}

func (s *service) watch(stops ...func()) { s.stops = append(s.stops, stops...) }

// bookedTwice is the audit of the effects: how many bookings there are too many.
func (s *service) bookedTwice(ctx context.Context) (n int64, err error) {
	err = s.store.DB().QueryRowContext(ctx, "SELECT count(*) - count(DISTINCT order_id) FROM booking").Scan(&n)
	return n, err
}

// work takes orders, relays and books them until ctx ends.
func (s *service) work(ctx context.Context, every time.Duration) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	errs := make([]error, 3)
	for i, part := range []func(context.Context) error{
		s.relay.Run,
		func(ctx context.Context) error { return s.take(ctx, every) },
		func(ctx context.Context) error {
			return broker.Consume(ctx, s.rcv, dedup.Handler(s.inbox, book, dedup.Serves(broker.Entity{Topic: topic, Subscription: subscription,
				Window: time.Minute, Lease: 30 * time.Second, MaxDeliveries: 10}, dedup.Horizon{Replay: 24 * time.Hour})), broker.ConsumeOptions{})
		},
	} {
		all.Go(func() {
			defer stop()
			errs[i] = part(ctx)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// book is the effect.
func book(ctx context.Context, tx *sql.Tx, d *broker.Delivery) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO booking VALUES (?, 42)", d.ID)
	return err
}

// take writes an order now and then, and each third one again as a copy, as somebody
// who resubmits what is already done.
func (s *service) take(ctx context.Context, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for n := 0; ; n++ {
		id, err := dedup.JoinID(1, fmt.Sprint("order-", n), "paid")
		if err != nil {
			return err
		}
		err = s.outbox.InTx(ctx, func(tx *sql.Tx) error {
			msgs := []broker.Message{{ID: id, Body: []byte("42")}}
			if n%3 == 0 {
				msgs = append(msgs, broker.Message{ID: id, Copy: "resubmit", Body: []byte("42")})
			}
			return s.outbox.AddTx(ctx, tx, msgs...)
		})
		if err == nil {
			_, err = s.prices.Publish(ctx, broker.Message{ID: id, Body: []byte("42")})
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// close closes what open has opened, in the reverse order.
func (s *service) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var errs []error
	if s.outbox != nil {
		errs = append(errs, s.outbox.Close(ctx))
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close(ctx))
		s.broker.Close()
	}
	for _, stop := range s.stops {
		stop()
	}
	if s.telemetry != nil {
		errs = append(errs, s.telemetry.Close())
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.provider != nil {
		errs = append(errs, s.provider.Shutdown(ctx))
	}
	return errors.Join(errs...)
}
