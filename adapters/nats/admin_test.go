package nats

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceline/onceline/broker"
)

func streamOf(t *testing.T, c broker.Conn, name string) jetstream.StreamConfig {
	t.Helper()
	s, err := connOf(t, c).js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config
}

func consumerOf(t *testing.T, c broker.Conn, stream, name string) jetstream.ConsumerConfig {
	t.Helper()
	k, err := connOf(t, c).js.Consumer(t.Context(), stream, name)
	if err != nil {
		t.Fatal(err)
	}
	return k.CachedInfo().Config
}

func TestEnsure(t *testing.T) {
	t.Parallel()
	c := dialShared(t)
	e := entity(t, func(e *broker.Entity) {
		e.Window, e.Lease, e.MaxDeliveries, e.Ordered, e.MaxBody = time.Minute, 7*time.Second, 5, true, 4096
		e.DeadLetter = "dead-" + strings.ReplaceAll(e.Topic, ".", "-")
	})
	for range 2 { // the second finds what it wants
		ensure(t, c, e)
	}
	stream, consumer, _ := splitSubscription(e.Subscription)
	s := streamOf(t, c, stream)
	if s.Duplicates != time.Minute || s.MaxMsgSize != 4096+headerRoom || s.Storage != jetstream.FileStorage || len(s.Subjects) != 2 ||
		s.Subjects[0] != e.Topic || s.Subjects[1] != e.Topic+".>" {
		t.Errorf("stream %+v", s)
	}
	k := consumerOf(t, c, stream, consumer)
	if k.AckWait != 7*time.Second || k.MaxAckPending != 1 || k.MaxDeliver != -1 || k.AckPolicy != jetstream.AckExplicitPolicy || k.DeliverSubject != "" ||
		k.Metadata[metaDeadLetter] != e.DeadLetter || k.Metadata[metaMaxDeliveries] != "5" {
		t.Errorf("consumer %+v", k)
	}
	p := publisherOf(t, c, e.Topic)
	if l := p.Limits(); l.Body != 4096 || l.Window != time.Minute || l.Headers == 0 {
		t.Errorf("limits %+v", l)
	}
	if l := publisherOf(t, c, e.DeadLetter).Limits(); l.Body < 1<<20-4096 || l.Window != 2*time.Minute {
		t.Errorf("limits without wishes %+v", l)
	}
	// A sibling topic and another subscription share the stream.
	sibling := broker.Entity{Topic: e.Topic + ".sibling", Subscription: stream + "/other"}
	ensure(t, c, sibling)
	if k := consumerOf(t, c, stream, "other"); len(k.FilterSubjects) != 2 || k.FilterSubjects[0] != sibling.Topic {
		t.Errorf("sibling's consumer %+v", k)
	}

	ctx := t.Context()
	for name, change := range map[string]func(*broker.Entity){
		"window":     func(e *broker.Entity) { e.Window = time.Second },
		"lease":      func(e *broker.Entity) { e.Lease = time.Second },
		"stream":     func(e *broker.Entity) { e.Subscription = "another/billing" },
		"max":        func(e *broker.Entity) { e.MaxDeliveries = 6 },
		"dead":       func(e *broker.Entity) { e.DeadLetter += "2" },
		"body":       func(e *broker.Entity) { e.MaxBody = 1 },
		"server max": func(e *broker.Entity) { e.DeadLetter = "" },
	} {
		w := e
		change(&w)
		err := c.Ensure(ctx, w)
		wantErr(t, err, broker.ErrConflict)
		if name == "window" && (!strings.Contains(err.Error(), "1m0s") || !strings.Contains(err.Error(), "1s")) {
			t.Errorf("%s: %v lacks a value", name, err)
		}
		if err := c.Delete(ctx, broker.Entity{Topic: e.DeadLetter + "2"}); err != nil {
			t.Error(err)
		}
	}
	plain := entity(t)
	ensure(t, c, plain)
	plain.Ordered = true
	wantErr(t, c.Ensure(ctx, plain), broker.ErrConflict)

	e.Topic += ".sibling" // not made by itself: stays with the stream
	e.Subscription, e.Lease, e.MaxDeliveries, e.DeadLetter = "", 0, 0, ""
	if err := c.Delete(ctx, e); err != nil {
		t.Fatal(err)
	}
	streamOf(t, c, stream)
}

func TestEnsureRefuses(t *testing.T) {
	t.Parallel()
	c := dialShared(t)
	good := entity(t)
	for name, w := range map[string]struct {
		kind   error
		change func(*broker.Entity)
	}{
		"partitions":       {broker.ErrUnsupported, func(e *broker.Entity) { e.Partitions = 2 }},
		"wildcard":         {broker.ErrInvalid, func(e *broker.Entity) { e.Topic = "a.*" }},
		"all":              {broker.ErrInvalid, func(e *broker.Entity) { e.Topic = "a.>" }},
		"space":            {broker.ErrInvalid, func(e *broker.Entity) { e.Topic = "a b" }},
		"empty token":      {broker.ErrInvalid, func(e *broker.Entity) { e.Topic = "a..b" }},
		"the server's":     {broker.ErrInvalid, func(e *broker.Entity) { e.Topic = "$JS.API.x" }},
		"no stream":        {broker.ErrInvalid, func(e *broker.Entity) { e.Subscription = "billing" }},
		"two slashes":      {broker.ErrInvalid, func(e *broker.Entity) { e.Subscription = "a/b/c" }},
		"dot":              {broker.ErrInvalid, func(e *broker.Entity) { e.Subscription = "a.b/c" }},
		"dead below":       {broker.ErrInvalid, func(e *broker.Entity) { e.DeadLetter = e.Topic + ".dead" }},
		"dead itself":      {broker.ErrInvalid, func(e *broker.Entity) { e.DeadLetter = e.Topic }},
		"lease of a topic": {broker.ErrInvalid, func(e *broker.Entity) { e.Subscription = "" }},
		"short window":     {broker.ErrUnsupported, func(e *broker.Entity) { e.Window = time.Millisecond }},
		"huge body":        {broker.ErrUnsupported, func(e *broker.Entity) { e.MaxBody = 1 << 20 }},
		"negative":         {broker.ErrInvalid, func(e *broker.Entity) { e.Window = -1 }},
	} {
		e := good
		w.change(&e)
		if err := c.Ensure(t.Context(), e); !errors.Is(err, w.kind) {
			t.Errorf("%s: %v, want %v", name, err, w.kind)
		}
	}
	if err := dialShared(t, Replicas(3)).Ensure(t.Context(), good); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("three replicas on one server: %v", err)
	}
	if err := dialShared(t, Domain("nowhere")).Ensure(t.Context(), good); err == nil {
		t.Error("a domain that isn't there")
	}
}

func TestOptionsOfStreams(t *testing.T) {
	t.Parallel()
	c := dialShared(t, MemoryStorage(), WorkQueue(), MaxAckPending(7))
	e := entity(t)
	ensure(t, c, e)
	stream, consumer, _ := splitSubscription(e.Subscription)
	if s := streamOf(t, c, stream); s.Storage != jetstream.MemoryStorage || s.Retention != jetstream.WorkQueuePolicy {
		t.Errorf("stream %+v", s)
	}
	if k := consumerOf(t, c, stream, consumer); k.MaxAckPending != 7 {
		t.Errorf("consumer %+v", k)
	}
	ensure(t, dialShared(t), e) // no wish, no conflict
	for _, o := range []Option{FileStorage(), LimitsRetention(), MaxAckPending(8)} {
		wantErr(t, dialShared(t, o).Ensure(t.Context(), e), broker.ErrConflict)
	}
	second := e
	second.Subscription = stream + "/second"
	wantErr(t, c.Ensure(t.Context(), second), broker.ErrConflict) // a work queue has one consumer for a subject
}

func TestOptionOfAtomicBatches(t *testing.T) {
	e := entity(t)
	plain := dialShared(t)
	ensure(t, plain, e)
	c := dialShared(t, AtomicBatches())
	wantErr(t, c.Ensure(t.Context(), e), broker.ErrConflict) // the stream is there and takes none
	x, err := broker.OpenTransactor(t.Context(), c, "x")
	if err != nil {
		t.Fatal(err)
	}
	tx, err := x.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = tx.Publish(t.Context(), e.Topic, message("a"))
	wantErr(t, err, broker.ErrUnsupported)
	other := entity(t)
	ensure(t, c, other)
	ensure(t, plain, other) // no wish, no conflict
	if _, err := tx.Publish(t.Context(), other.Topic, message("a"), message("b")); err != nil {
		t.Fatal(err)
	}
	if o, err := tx.Commit(t.Context()); o.State != broker.Confirmed {
		t.Fatal(o, err)
	}
	stream, _, _ := splitSubscription(other.Subscription)
	if s := streamOf(t, c, stream); !s.AllowAtomicPublish {
		t.Errorf("stream %+v", s)
	}
}

func TestEnsureAtOnce(t *testing.T) {
	t.Parallel()
	e := entity(t, func(e *broker.Entity) {
		e.DeadLetter = "dead-" + strings.ReplaceAll(e.Topic, ".", "-")
		e.MaxDeliveries = 3
	})
	var wait sync.WaitGroup
	for range 6 {
		c := dialShared(t)
		wait.Go(func() {
			if err := c.Ensure(t.Context(), e); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
}

func TestDelete(t *testing.T) {
	t.Parallel()
	c := dialShared(t)
	e := entity(t, func(e *broker.Entity) { e.DeadLetter = "dead-" + strings.ReplaceAll(e.Topic, ".", "-") })
	ctx := t.Context()
	for range 2 { // what isn't there is no error
		if err := c.Delete(ctx, e); err != nil {
			t.Fatal(err)
		}
		ensure(t, c, e)
		publish(t, publisherOf(t, c, e.Topic), message("x"))
	}
	if err := c.Delete(ctx, e); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{e.Topic, e.DeadLetter} {
		_, err := c.OpenPublisher(ctx, topic)
		wantErr(t, err, broker.ErrNotFound)
	}
	_, err := c.OpenReceiver(ctx, e.Subscription)
	wantErr(t, err, broker.ErrNotFound)

	// A stream of somebody else, which captures the topic among others, is used
	// and not deleted.
	js := connOf(t, c).js
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "foreign", Subjects: []string{"foreign.*", "alien.>"}}); err != nil {
		t.Fatal(err)
	}
	f := broker.Entity{Topic: "foreign.orders", Subscription: "foreign/c"}
	ensure(t, c, f)
	if k := consumerOf(t, c, "foreign", "c"); len(k.FilterSubjects) != 0 || k.FilterSubject != "foreign.orders" {
		if len(k.FilterSubjects) != 1 || k.FilterSubjects[0] != "foreign.orders" {
			t.Errorf("filters %q, %q", k.FilterSubject, k.FilterSubjects)
		}
	}
	if err := c.Delete(ctx, f); err != nil {
		t.Fatal(err)
	}
	streamOf(t, c, "foreign")
	if _, err := js.Consumer(ctx, "foreign", "c"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("the consumer: %v", err)
	}
	// The name of the stream is taken by other subjects.
	wantErr(t, c.Ensure(ctx, broker.Entity{Topic: "foreign"}), broker.ErrConflict)
	if err := js.DeleteStream(ctx, "foreign"); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	c := dialShared(t)
	ctx := t.Context()
	e := entity(t)
	ensure(t, c, e)
	for name, kind := range map[string]error{"a b": broker.ErrInvalid, "a.>": broker.ErrInvalid, "nowhere": broker.ErrNotFound} {
		_, err := c.OpenPublisher(ctx, name)
		wantErr(t, err, kind)
	}
	for name, kind := range map[string]error{"a": broker.ErrInvalid, "a/": broker.ErrInvalid, "nowhere/c": broker.ErrNotFound} {
		_, err := c.OpenReceiver(ctx, name)
		wantErr(t, err, kind)
	}
	_, err := c.OpenReceiver(ctx, e.Subscription, broker.StartFrom(func(string) (broker.Position, bool) { return broker.Position{}, false }))
	wantErr(t, err, broker.ErrUnsupported)
	// Consumers that this adapter can't serve.
	stream, _, _ := splitSubscription(e.Subscription)
	js := connOf(t, c).js
	if _, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: "noack", AckPolicy: jetstream.AckNonePolicy}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateOrUpdatePushConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: "push", DeliverSubject: "somewhere", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"noack", "push"} {
		_, err := c.OpenReceiver(ctx, stream+"/"+name)
		wantErr(t, err, broker.ErrUnsupported)
	}
	e.Subscription = stream + "/push"
	wantErr(t, c.Ensure(ctx, e), broker.ErrConflict)
}

func TestCovers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, subject string
		want             bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"a.>", "a", false}, {"a.>", "a.b", true}, {"a.>", "a.>", true}, {"a.*", "a.b", true},
		{"a.*", "a.>", false}, {"a.*", "a.b.c", false}, {">", "a.>", true}, {"*", "a", true}, {"*.b", "a.b", true}, {"a.b", "a", false},
	} {
		if got := covers(c.pattern, c.subject); got != c.want {
			t.Errorf("covers(%q, %q) = %v", c.pattern, c.subject, got)
		}
	}
	if s := streamName("a.b/c\\d>"); s != "a_b_c_d_" || !validName(s) {
		t.Errorf("stream name %q", s)
	}
}
