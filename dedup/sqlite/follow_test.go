package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	neturl "net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/onceline/onceline/adapters/kafka"
	_ "github.com/onceline/onceline/adapters/rabbitmq"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/localstack"
)

// TestFollow: consumers of a Kafka group and of a RabbitMQ stream come, go and are cut
// off from their broker, the position is set back once with the effects that there were,
// and each message has its effect once, in the order of its partition.
func TestFollow(t *testing.T) {
	t.Run("kafka", func(t *testing.T) {
		t.Parallel() // most of it waits for the group
		e, err := localstack.StartKafka(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		follow(t, e, e.URL(), 3, 2)
	})
	t.Run("stream", func(t *testing.T) {
		t.Parallel()
		e, err := localstack.StartRabbitMQ(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		at, err := neturl.Parse(e.URL())
		if err != nil {
			t.Fatal(err)
		}
		follow(t, e, "rabbitmq://"+at.Host+"/?queue=stream&stream-port="+at.Port(), 0, 1)
	})
}

func follow(t *testing.T, e localstack.Emulator, url string, partitions, members int) {
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "follow.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.DB().ExecContext(t.Context(), "CREATE TABLE ledger (n INTEGER PRIMARY KEY, part TEXT, at INTEGER, id TEXT)"); err != nil {
		t.Fatal(err)
	}
	connect := func() broker.Conn {
		conn, err := broker.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	conn := connect()
	if err := conn.Ensure(t.Context(), broker.Entity{Topic: "in", Subscription: "in/billing", Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
	pub, err := conn.OpenPublisher(t.Context(), "in")
	if err != nil {
		t.Fatal(err)
	}
	published := 0
	publish := func(n int) {
		t.Helper()
		for range n {
			id := fmt.Sprintf("m%04d", published)
			if _, err := pub.Publish(t.Context(), broker.Message{ID: id, Key: fmt.Sprint("k", published%7), Body: []byte(id)}); err != nil {
				t.Fatal(err)
			}
			published++
		}
	}
	positions := dedup.NewPosition(s, "billing", dedup.Options{MaxBatch: 10})
	var opened atomic.Int64
	begin := func() (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		of := connect()
		go func() {
			done <- dedup.Follow(ctx, positions, dedup.Log{
				Topic: "in", Batch: 20, Backoff: broker.Backoff{Min: 5 * time.Millisecond, Max: 50 * time.Millisecond},
				Open: func(ctx context.Context, opts ...broker.ReceiverOption) (broker.Receiver, error) {
					opened.Add(1)
					return of.OpenReceiver(ctx, "in/billing", opts...)
				},
				ErrorHook: func(err error) { t.Log(err) },
			}, func(ctx context.Context, tx *sql.Tx, d *broker.Delivery) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO ledger (part, at, id) VALUES (?, ?, ?)", d.Position.Partition, int64(d.Position.Offset), d.ID)
				return err
			})
		}()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	count := func() (n int) {
		t.Helper()
		if err := s.DB().QueryRowContext(t.Context(), "SELECT count(*) FROM ledger").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	wait := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(60 * time.Second); count() < n; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d effects, want %d", count(), n)
			}
		}
	}
	var ends []func()
	for range members {
		ends = append(ends, begin())
	}
	publish(150)
	wait(50)
	ends = append(ends, begin()) // one more comes
	publish(50)
	e.Disconnect()
	publish(50)
	wait(200)
	ends[0]() // and one goes
	publish(50)
	wait(published)

	// As by a backup that is put back.
	if err := s.Transact(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec("DELETE FROM ledger WHERE at >= 10")
		_, moved := tx.Exec("UPDATE onceline_position SET last = 9 WHERE last > 9")
		return errors.Join(err, moved)
	}); err != nil {
		t.Fatal(err)
	}
	before := opened.Load()
	publish(50)
	wait(published)
	for _, end := range ends[1:] {
		end()
	}
	if opened.Load() == before {
		t.Error("nobody went back")
	}
	var twice, turned int
	if err := s.DB().QueryRow("SELECT (SELECT count(*) FROM (SELECT 1 FROM ledger GROUP BY id HAVING count(*) > 1)), (SELECT count(*) FROM (SELECT at <= lag(at) OVER (PARTITION BY part ORDER BY n) AS back FROM ledger) WHERE back)").
		Scan(&twice, &turned); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != published || twice > 0 || turned > 0 {
		t.Errorf("%d effects of %d messages, %d twice, %d out of order", n, published, twice, turned)
	}
	t.Logf("opened %d receivers, %+v", opened.Load(), positions.Stats())
}
