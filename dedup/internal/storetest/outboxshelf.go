package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// shelf is a broker that remembers IDs for ever, and takes each message as answer
// says.
type shelf struct {
	mu        sync.Mutex
	window    time.Duration
	answer    func(m broker.Message) (stored bool, r broker.Receipt)
	block     func(ctx context.Context) // before anything is stored
	stored    []broker.Message          // in order, copies left out
	copies    int
	ids       map[string]bool
	publishes [][]string
}

func newShelf(window time.Duration) *shelf { return &shelf{window: window, ids: map[string]bool{}} }

var stored = broker.Receipt{Verdict: broker.Stored}

func refused(err error) broker.Receipt { return broker.Receipt{Verdict: broker.Refused, Err: err} }

func noAnswer() broker.Receipt {
	return broker.Receipt{Err: fmt.Errorf("answer lost: %w", broker.ErrUnknownOutcome)}
}

func (s *shelf) Publish(ctx context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	if s.block != nil {
		s.block(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	var first error
	receipts := make([]broker.Receipt, len(msgs))
	for i, m := range msgs {
		ids = append(ids, m.ID)
		keep, r := true, stored
		if ctx.Err() != nil {
			keep, r = false, broker.Receipt{Err: ctx.Err()}
		} else if s.answer != nil {
			keep, r = s.answer(m)
		}
		if keep && s.ids[m.ID] {
			s.copies++
			if r.Verdict == broker.Stored {
				r.Verdict = broker.Duplicate
			}
		} else if keep {
			s.ids[m.ID] = true
			m.Body = slices.Clone(m.Body)
			s.stored = append(s.stored, m)
		}
		if receipts[i] = r; first == nil {
			first = r.Err
		}
	}
	s.publishes = append(s.publishes, ids)
	return receipts, first
}

func (s *shelf) Limits() broker.Limits           { return broker.Limits{Window: s.window} }
func (s *shelf) As(any) bool                     { return false }
func (s *shelf) Close(ctx context.Context) error { return nil }

// got returns the IDs stored, in order.
func (s *shelf) got() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, m := range s.stored {
		ids = append(ids, m.ID)
	}
	return strings.Join(ids, " ")
}

// set changes the answers.
func (s *shelf) set(answer func(m broker.Message) (bool, broker.Receipt)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// errs collects what goes to an ErrorHook.
type errs struct {
	mu  sync.Mutex
	all []error
}

func (e *errs) add(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, err)
}

func (e *errs) is(kind error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.all, func(err error) bool { return errors.Is(err, kind) })
}

// instant are options that don't wait.
func instant(e *errs) dedup.RelayOptions {
	return dedup.RelayOptions{Backoff: broker.Backoff{Min: time.Microsecond, Max: time.Microsecond}, ErrorHook: e.add, Poll: 5 * time.Millisecond}
}

// msgs makes messages of "id/key".
func msgs(texts ...string) []broker.Message {
	ms := make([]broker.Message, len(texts))
	for i, text := range texts {
		id, key, _ := strings.Cut(text, "/")
		ms[i] = broker.Message{ID: id, Key: key, Body: []byte("body of " + id)}
	}
	return ms
}

func add[T any](t *testing.T, d dedup.OutboxDriver[T], topic string, texts ...string) {
	t.Helper()
	out := dedup.NewOutbox(d, topic, dedup.OutboxOptions{})
	if err := out.InTx(t.Context(), func(tx T) error { return out.AddTx(t.Context(), tx, msgs(texts...)...) }); err != nil {
		t.Fatal(err)
	}
}

// drain drains until nothing is left that can be sent.
func drain[T any](t *testing.T, s OutboxSetup[T], to *shelf, o dedup.RelayOptions) *dedup.Relay {
	t.Helper()
	r := dedup.NewRelay(s.Driver, "orders", to, o)
	for deadline := time.Now().Add(patience); ; {
		n, err := r.Drain(t.Context())
		if n == 0 && err == nil {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("never drained: %v", err)
		}
		s.Forward(time.Millisecond)
	}
}

func backlog[T any](t *testing.T, s OutboxSetup[T], topic string, want dedup.OutboxBacklog) {
	t.Helper()
	b, err := s.Driver.OutboxBacklog(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if b.Oldest = 0; b != want {
		t.Errorf("backlog of %s: %v, want %v", topic, b, want)
	}
}
