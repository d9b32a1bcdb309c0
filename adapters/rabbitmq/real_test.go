package rabbitmq

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	amqp "github.com/rabbitmq/amqp091-go"
)

// realHost is a server of the vendor's: one that the tests share, or
//
//	ONCELINE_RABBITMQ=127.0.0.1:5672 go test -run TestReal ./adapters/rabbitmq
//
// The account guest with its default password must be let in.
func realHost(t testing.TB) *host {
	t.Helper()
	if addr := os.Getenv("ONCELINE_RABBITMQ"); addr != "" {
		return &host{addr: addr}
	}
	_, addr, _ := strings.Cut(sharedMeasured(t).DirectURL(), "://") // without the fault proxy
	return &host{addr: addr}
}

func TestReal(t *testing.T) {
	h := realHost(t)
	for _, kind := range []Kind{Quorum, Classic} {
		t.Run(kind.String(), func(t *testing.T) {
			contract(t, kind, func(t testing.TB, opts ...Option) broker.Conn { return h.dial(t, opts...) })
		})
	}
}

// TestRealAcksBeforeClose: acks that are written just before a channel closes can
// get lost on quorum queues; Close asks the queue first.
func TestRealAcksBeforeClose(t *testing.T) {
	h := realHost(t)
	c := h.dial(t)
	e := entity(t, c)
	p := publisherOf(t, c, e.Topic)
	const n, rounds = 20000, 2
	for round := range rounds {
		for from := 0; from < n; from += 1000 {
			publish(t, p, messages(1000, from)...)
		}
		r := receiverOf(t, c, e.Subscription)
		ds := receive(t, r, n)
		slices.Reverse(ds) // so that each needs a frame of its own
		wantStates(t, settle(t, r, broker.Ack, ds...), broker.Sent)
		closing(t, r)
		if left := ready(t, h.raw(t), e.Subscription); left > 0 {
			t.Fatalf("round %d: %d of %d acked messages are there again", round, left, n)
		}
	}
}

// TestRealWrongPassword: a node answers at once where the client announces that it
// understands the answer (RMQ-F-120), and the second one isn't asked.
func TestRealWrongPassword(t *testing.T) {
	h := realHost(t)
	start := time.Now()
	_, err := Dial(t.Context(), "rabbitmq://guest:wrong@"+h.addr+","+h.addr+"/", quiet())
	took := time.Since(start)
	var reply *amqp.Error
	if !errors.Is(err, broker.ErrUnauthorized) || !errors.As(err, &reply) || !reply.Server {
		t.Errorf("got %v", err)
	}
	// Without the announcement it takes 3 s, and as many for each further node.
	if took >= 3*time.Second {
		t.Errorf("took %s", took)
	}
	t.Logf("%s: %v", took, err)
}
