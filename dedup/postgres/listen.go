package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// Listener returns what [dedup.RelayOptions].Listen takes: it hears, on a connection
// of its own that connect opens, what outboxes with Others tell of a topic, in the
// schema that [Options] names ("" is public). A connection that is lost is opened
// again; the relay's polling finds what wasn't heard meanwhile.
func Listener(connect func(ctx context.Context) (*pgx.Conn, error), schema, topic string) func(ctx context.Context, wake func(), failed func(error)) {
	if schema == "" {
		schema = "public"
	}
	payload := payloadOf(schema, topic)
	return func(ctx context.Context, wake func(), failed func(error)) {
		wait := time.Second
		for {
			began := time.Now()
			err := listen(ctx, connect, payload, wake)
			if ctx.Err() != nil {
				return
			}
			failed(fmt.Errorf("dedup/postgres: listen: %w", err))
			if wait = min(wait*2, 30*time.Second); time.Since(began) > time.Minute {
				wait = time.Second
			}
			timer := time.NewTimer(time.Duration((1 + rand.Float64()) / 2 * float64(wait)))
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
	}
}

// listen calls wake for each message of payload until the connection or ctx ends.
func listen(ctx context.Context, connect func(ctx context.Context) (*pgx.Conn, error), payload string, wake func()) error {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+outboxChannel); err != nil {
		return err
	}
	wake() // what was told before
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if n.Payload == payload {
			wake()
		}
	}
}
