package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceline/onceline/broker"
)

// What Ensure writes into the metadata of streams and consumers, so that Delete
// knows its own and every receiver the wishes that the server has no field for.
const (
	metaTopic         = "onceline-topic"
	metaMaxDeliveries = "onceline-max-deliveries"
	metaDeadLetter    = "onceline-dead-letter"
)

// Ensure makes the stream, the dead-letter stream and the consumer, in this
// order. It can be called again after an error.
func (c *conn) Ensure(ctx context.Context, e broker.Entity) error {
	if err := checkEntity(e); err != nil {
		return err
	}
	stream, consumer := "", ""
	if e.Subscription != "" {
		var err error
		if stream, consumer, err = splitSubscription(e.Subscription); err != nil {
			return err
		}
	}
	ctx, done := c.while(ctx)
	defer done()
	s, err := c.ensureStream(ctx, e.Topic, stream, e)
	if err != nil {
		return err
	}
	if e.DeadLetter != "" {
		dead, err := c.ensureStream(ctx, e.DeadLetter, "", broker.Entity{})
		if err != nil {
			return err
		}
		if dead.Name == s.Name {
			return broker.Errorf(broker.ErrConflict, nil, "ensure %s: dead-letter topic %s is in the same stream, %s", e.Topic, e.DeadLetter, s.Name)
		}
	}
	if consumer == "" {
		return nil
	}
	return c.ensureConsumer(ctx, e, s, consumer)
}

func checkEntity(e broker.Entity) error {
	if err := checkTopic(e.Topic); err != nil {
		return err
	}
	if e.Partitions > 1 {
		return broker.Errorf(broker.ErrUnsupported, nil, "ensure %s: %d partitions: a stream is one sequence", e.Topic, e.Partitions)
	}
	if e.DeadLetter != "" {
		if err := checkTopic(e.DeadLetter); err != nil {
			return err
		}
		if e.DeadLetter == e.Topic || strings.HasPrefix(e.DeadLetter, e.Topic+".") || strings.HasPrefix(e.Topic, e.DeadLetter+".") {
			return broker.Errorf(broker.ErrInvalid, nil, "ensure %s: dead-letter topic %s: one stream would capture both", e.Topic, e.DeadLetter)
		}
	}
	if e.Subscription == "" && (e.Lease > 0 || e.MaxDeliveries > 0) {
		return broker.Errorf(broker.ErrInvalid, nil, "ensure %s: a lease or a limit of deliveries is a subscription's, and none is named", e.Topic)
	}
	return nil
}

// ensureStream returns the stream that captures topic, made if there is none.
// name is the one that the subscription wants; empty, any will do.
func (c *conn) ensureStream(ctx context.Context, topic, name string, e broker.Entity) (jetstream.StreamConfig, error) {
	if room := int(c.nc.MaxPayload()) - headerRoom - deadLetterRoom; e.MaxBody > room {
		return jetstream.StreamConfig{}, broker.Errorf(broker.ErrUnsupported, nil,
			"ensure %s: bodies of %d bytes: the server's limit leaves %d beside the headers", topic, e.MaxBody, room)
	}
	for try := 0; ; try++ {
		found, err := c.streamOf(ctx, topic)
		switch {
		case err == nil && name != "" && found != name:
			return jetstream.StreamConfig{}, broker.Errorf(broker.ErrConflict, nil,
				"ensure %s: it is in stream %s, and the subscription wants stream %s", topic, found, name)
		case err == nil:
			cfg, err := c.lookUpStream(ctx, found)
			if err != nil {
				return jetstream.StreamConfig{}, failure(ctx, err, "ensure %s: stream %s", topic, found)
			}
			return cfg, c.compareStream(topic, cfg, e, broker.ErrConflict)
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			return jetstream.StreamConfig{}, failure(ctx, err, "ensure %s: look for its stream", topic)
		}
		want := c.streamConfig(topic, name, e)
		s, err := c.js.CreateStream(ctx, want)
		if err == nil {
			cfg := s.CachedInfo().Config
			return cfg, c.compareStream(topic, cfg, e, broker.ErrUnsupported)
		}
		if try > 0 || !errors.Is(kindOf(err), broker.ErrConflict) {
			return jetstream.StreamConfig{}, failure(ctx, err, "ensure %s: create stream %s", topic, want.Name)
		}
		// Somebody else made a stream meanwhile, or the name is taken.
		if has, look := c.lookUpStream(ctx, want.Name); look == nil && !covered(topic, has.Subjects) {
			return jetstream.StreamConfig{}, broker.Errorf(broker.ErrConflict, err,
				"ensure %s: stream %s has subjects %v, wanted %v", topic, want.Name, has.Subjects, want.Subjects)
		}
	}
}

func (c *conn) streamConfig(topic, name string, e broker.Entity) jetstream.StreamConfig {
	if name == "" {
		name = streamName(topic)
	}
	cfg := jetstream.StreamConfig{Name: name, Subjects: []string{topic, topic + ".>"}, Storage: jetstream.FileStorage,
		Duplicates: e.Window, Replicas: c.opts.replicas, Metadata: map[string]string{metaTopic: topic}}
	if e.MaxBody > 0 {
		cfg.MaxMsgSize = int32(min(int64(e.MaxBody)+headerRoom, 1<<31-1))
	}
	if c.opts.storage != nil {
		cfg.Storage = *c.opts.storage
	}
	if c.opts.retention != nil {
		cfg.Retention = *c.opts.retention
	}
	cfg.AllowAtomicPublish = c.opts.batches
	return cfg
}

// compareStream holds a stream against the wishes. kind is the error for a
// difference: what exists is in conflict with the wish, what was just made shows
// that the server can't meet it.
func (c *conn) compareStream(topic string, cfg jetstream.StreamConfig, e broker.Entity, kind error) error {
	differs := func(what string, has, wished any) error {
		return broker.Errorf(kind, nil, "ensure %s: stream %s has %s %v, wished %v", topic, cfg.Name, what, has, wished)
	}
	o := &c.opts
	switch {
	case e.Window > 0 && cfg.Duplicates != e.Window:
		return differs("window", cfg.Duplicates, e.Window)
	case e.MaxBody > 0 && int64(cfg.MaxMsgSize) != int64(e.MaxBody)+headerRoom:
		return differs(fmt.Sprintf("a limit (body and %d for headers) of", headerRoom), cfg.MaxMsgSize, e.MaxBody+headerRoom)
	case o.replicas > 0 && cfg.Replicas != o.replicas:
		return differs("replicas", cfg.Replicas, o.replicas)
	case o.storage != nil && cfg.Storage != *o.storage:
		return differs("storage", cfg.Storage, *o.storage)
	case o.retention != nil && cfg.Retention != *o.retention:
		return differs("retention", cfg.Retention, *o.retention)
	case o.batches && !cfg.AllowAtomicPublish:
		return differs("allow_atomic", false, true)
	}
	return nil
}

func (c *conn) ensureConsumer(ctx context.Context, e broker.Entity, s jetstream.StreamConfig, name string) error {
	want := c.consumerConfig(e, s, name)
	for try := 0; ; try++ {
		has, err := c.lookUpConsumer(ctx, s.Name, name)
		if err == nil {
			return compareConsumer(e.Subscription, has, want, broker.ErrConflict)
		}
		if errors.Is(err, jetstream.ErrNotPullConsumer) {
			return broker.Errorf(broker.ErrConflict, err, "ensure %s: it exists and pushes", e.Subscription)
		}
		if !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return failure(ctx, err, "ensure %s", e.Subscription)
		}
		k, err := c.js.CreateConsumer(ctx, s.Name, want)
		if err == nil {
			return compareConsumer(e.Subscription, k.CachedInfo().Config, want, broker.ErrUnsupported)
		}
		var api *jetstream.APIError
		raced := errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeConsumerExists
		if try > 0 || !raced {
			return failure(ctx, err, "ensure %s: create the consumer", e.Subscription)
		}
	}
}

func (c *conn) consumerConfig(e broker.Entity, s jetstream.StreamConfig, name string) jetstream.ConsumerConfig {
	cfg := jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: e.Lease,
		MaxAckPending: c.opts.maxAckPending, Metadata: map[string]string{metaTopic: e.Topic}}
	if e.Ordered {
		// Stream order over redeliveries needs one delivery at a time
		// (NATS-F-30).
		cfg.MaxAckPending = 1
	}
	for _, subject := range []string{e.Topic, e.Topic + ".>"} {
		if covered(subject, s.Subjects) {
			cfg.FilterSubjects = append(cfg.FilterSubjects, subject)
		}
	}
	if e.DeadLetter != "" {
		cfg.Metadata[metaDeadLetter] = e.DeadLetter
		if e.MaxDeliveries > 0 {
			cfg.Metadata[metaMaxDeliveries] = strconv.Itoa(e.MaxDeliveries)
		}
		cfg.MaxDeliver = -1 // the server's own limit drops the message from delivery without a word (NATS-F-24)
	} else {
		cfg.MaxDeliver = e.MaxDeliveries
	}
	return cfg
}

// compareConsumer holds a consumer against the wishes. A dead-letter topic and
// limit are wishes only where one is given.
func compareConsumer(name string, has, want jetstream.ConsumerConfig, kind error) error {
	differs := func(what string, has, wished any) error {
		return broker.Errorf(kind, nil, "ensure %s: the consumer has %s %v, wished %v", name, what, has, wished)
	}
	hasFilters := slices.Clone(has.FilterSubjects)
	if has.FilterSubject != "" {
		hasFilters = append(hasFilters, has.FilterSubject)
	}
	slices.Sort(hasFilters)
	wantFilters := slices.Sorted(slices.Values(want.FilterSubjects))
	switch {
	case has.AckPolicy != want.AckPolicy:
		return differs("ack policy", has.AckPolicy, want.AckPolicy)
	case !slices.Equal(hasFilters, wantFilters):
		return differs("subjects", hasFilters, wantFilters)
	case want.AckWait > 0 && has.AckWait != want.AckWait:
		return differs("lease", has.AckWait, want.AckWait)
	case want.MaxAckPending > 0 && has.MaxAckPending != want.MaxAckPending:
		return differs("a limit of unsettled deliveries of", has.MaxAckPending, want.MaxAckPending)
	case want.MaxDeliver > 0 && has.MaxDeliver != want.MaxDeliver:
		return differs("a limit of deliveries of", has.MaxDeliver, want.MaxDeliver)
	case want.MaxDeliver < 0 && has.MaxDeliver > 0:
		return differs("a limit of deliveries in the server of", has.MaxDeliver, "none there")
	}
	for _, key := range []string{metaDeadLetter, metaMaxDeliveries} {
		if wished := want.Metadata[key]; wished != "" && has.Metadata[key] != wished {
			return differs(key, strconv.Quote(has.Metadata[key]), strconv.Quote(wished))
		}
	}
	return nil
}

// Delete removes the consumer, the stream and the dead-letter stream, each only
// if Ensure made it: a stream that was there before captures other subjects, and
// may be somebody else's.
func (c *conn) Delete(ctx context.Context, e broker.Entity) error {
	if err := checkEntity(e); err != nil {
		return err
	}
	ctx, done := c.while(ctx)
	defer done()
	if e.Subscription != "" {
		stream, consumer, err := splitSubscription(e.Subscription)
		if err != nil {
			return err
		}
		k, err := c.lookUpConsumer(ctx, stream, consumer)
		if err == nil && k.Metadata[metaTopic] == e.Topic {
			err = c.js.DeleteConsumer(ctx, stream, consumer)
		}
		if err != nil && !errors.Is(kindOf(err), broker.ErrNotFound) {
			return failure(ctx, err, "delete %s", e.Subscription)
		}
	}
	for _, topic := range []string{e.Topic, e.DeadLetter} {
		if topic == "" {
			continue
		}
		if err := c.deleteStream(ctx, topic); err != nil && !errors.Is(kindOf(err), broker.ErrNotFound) {
			return failure(ctx, err, "delete %s", topic)
		}
	}
	return nil
}

func (c *conn) deleteStream(ctx context.Context, topic string) error {
	name, err := c.streamOf(ctx, topic)
	if err != nil {
		return err
	}
	s, err := c.lookUpStream(ctx, name)
	if err != nil {
		return err
	}
	if s.Metadata[metaTopic] != topic {
		return nil
	}
	return c.js.DeleteStream(ctx, name)
}

// covered reports whether one of patterns captures all that subject does.
func covered(subject string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return covers(p, subject) })
}

func covers(pattern, subject string) bool {
	for {
		p, ps, pMore := strings.Cut(pattern, ".")
		s, ss, sMore := strings.Cut(subject, ".")
		switch {
		case p == ">":
			return true
		case s == ">" || (p != "*" && p != s) || pMore != sMore:
			return false
		case !pMore:
			return true
		}
		pattern, subject = ps, ss
	}
}

// checkTopic reports whether topic is a subject that one can publish to.
func checkTopic(topic string) error {
	for token := range strings.SplitSeq(topic, ".") {
		if token == "" || token == "*" || token == ">" || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
			return broker.Errorf(broker.ErrInvalid, nil, "topic %q: want a subject without wildcards, spaces and empty tokens", topic)
		}
	}
	if strings.HasPrefix(topic, "$") || strings.HasPrefix(topic, "_INBOX.") {
		return broker.Errorf(broker.ErrInvalid, nil, "topic %q: the server keeps such subjects to itself", topic)
	}
	return nil
}

// streamName is the name of the stream that Ensure makes for a topic.
func streamName(topic string) string {
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune(badNameRunes, c) {
			return '_'
		}
		return c
	}, topic)
}

const badNameRunes = ".*>/\\"

// validName reports whether s can name a stream, consumer or domain.
func validName(s string) bool {
	return s != "" && len(s) <= 255 && !strings.ContainsAny(s, badNameRunes) &&
		!strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c == 0x7f })
}
