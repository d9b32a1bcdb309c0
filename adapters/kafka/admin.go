package kafka

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
)

// Kafka's default for max.message.bytes is a batch of 1 MiB with its 12 bytes
// of log overhead (KAF-F-12).
const defaultBatchMax = 1<<20 + 12

// overhead is what a body shares a batch with: the batch's own header, the
// longest key, ID and Copy that pass validation, names of headers and lengths.
// User headers come on top.
const overhead = 61 + 3*broker.MaxID + 160

const (
	cfgMaxBytes   = "max.message.bytes"
	cfgTimestamps = "message.timestamp.type"
	cfgLock       = "share.record.lock.duration.ms"
	cfgCount      = "share.delivery.count.limit"
	cfgReset      = "share.auto.offset.reset"
	cfgIsolation  = "share.isolation.level"
	cfgCountAll   = "group.share.delivery.count.limit" // the broker's, for all groups
	mostAttempts  = 10                                 // the highest limit that any broker admits (KAF-F-42)
)

// checkTopic refuses what Kafka can't have as a topic's name.
func checkTopic(name string) error {
	ok := name != "" && name != "." && name != ".." && len(name) <= 249
	for i := 0; ok && i < len(name); i++ {
		b := name[i]
		ok = b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '_' || b == '-'
	}
	if !ok {
		return broker.Errorf(broker.ErrInvalid, nil, "topic %q: want 1 to 249 letters, digits, dots, underscores and hyphens", name)
	}
	return nil
}

// topicInfo is what the brokers know of a topic.
type topicInfo struct {
	name    string
	id      [16]byte
	leaders map[int32]int32 // partition → broker; -1: none now
}

// topicMeta asks for one topic.
func (c *conn) topicMeta(ctx context.Context, topic string) (topicInfo, error) {
	if err := checkTopic(topic); err != nil {
		return topicInfo{}, err
	}
	t, err := describe(ctx, c.admin, topic)
	if err != nil {
		return t, broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "topic %s", topic)
	}
	return t, nil
}

// describe asks the brokers themselves: kadm answers from a cache, in which a
// topic outlives its deletion.
func describe(ctx context.Context, cl kmsg.Requestor, topic string) (topicInfo, error) {
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &topic
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return topicInfo{}, err
	}
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		if rt.Topic == nil || *rt.Topic != topic {
			continue
		}
		if err := kerr.ErrorForCode(rt.ErrorCode); err != nil && !errors.Is(err, kerr.LeaderNotAvailable) {
			return topicInfo{}, err
		}
		t := topicInfo{name: topic, id: rt.TopicID, leaders: make(map[int32]int32, len(rt.Partitions))}
		for _, p := range rt.Partitions {
			t.leaders[p.Partition] = p.Leader
			if p.ErrorCode != 0 {
				t.leaders[p.Partition] = -1
			}
		}
		return t, nil
	}
	return topicInfo{}, kerr.UnknownTopicOrPartition
}

// lookUp checks that a topic exists and returns the largest body that it takes.
func (c *conn) lookUp(ctx context.Context, topic string) (int, error) {
	if _, err := c.topicMeta(ctx, topic); err != nil {
		return 0, err
	}
	batch := int64(defaultBatchMax)
	rs, err := c.adm.DescribeTopicConfigs(ctx, topic)
	var limit, stamps string
	if err == nil {
		if limit, err = valueOf(rs, cfgMaxBytes); err == nil {
			stamps, err = valueOf(rs, cfgTimestamps)
		}
	}
	if err != nil {
		// Without the right to look the broker's default is the best guess;
		// the broker refuses what is over the true limit.
		c.log.Warn("kafka: can't read the topic's limit", "topic", topic, "err", err)
	} else if n, err := strconv.ParseInt(limit, 10, 32); err == nil {
		batch = n
	}
	c.keepsTime.Store(topic, stamps == "CreateTime")
	// franz-go admits batches of 512 bytes to 1 GiB.
	c.batchMax.Store(topic, int32(max(512, min(batch, 1<<30))))
	return int(max(1, batch-overhead)), nil
}

// topicConfig reads one configuration value of a topic; "" where there is none.
func (c *conn) topicConfig(ctx context.Context, topic, key string) (string, error) {
	rs, err := c.adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return "", err
	}
	return valueOf(rs, key)
}

func valueOf(rs kadm.ResourceConfigs, key string) (string, error) {
	for _, r := range rs {
		if r.Err != nil {
			return "", r.Err
		}
		for _, kv := range r.Configs {
			if kv.Key == key && kv.Value != nil {
				return *kv.Value, nil
			}
		}
	}
	return "", nil
}

// Ensure is broker.Admin's.
func (c *conn) Ensure(ctx context.Context, e broker.Entity) error {
	if err := c.wishable(&e); err != nil {
		return err
	}
	if err := c.ensureTopic(ctx, e.Topic, e.Partitions, e.MaxBody); err != nil {
		return err
	}
	if e.DeadLetter != "" {
		if err := c.ensureTopic(ctx, e.DeadLetter, 0, 0); err != nil {
			return err
		}
	}
	if e.Subscription == "" {
		return nil
	}
	if c.opts.Mode == Share {
		_, group, err := splitSubscription(e.Subscription)
		if err != nil {
			return err
		}
		if err := c.ensureShareGroup(ctx, group, &e); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wishes[e.Subscription] = wishes{e.MaxDeliveries, e.DeadLetter, e.Ordered}
	return nil
}

// wishable refuses what Kafka can't do, before anything is made.
func (c *conn) wishable(e *broker.Entity) error {
	no := func(what string) error {
		return broker.Errorf(broker.ErrUnsupported, nil, "ensure %s: %s", e.Topic, what)
	}
	if err := checkTopic(e.Topic); err != nil {
		return err
	}
	if e.DeadLetter != "" {
		if err := checkTopic(e.DeadLetter); err != nil {
			return err
		}
		if e.DeadLetter == e.Topic {
			return broker.Errorf(broker.ErrInvalid, nil, "ensure %s: its own dead-letter topic", e.Topic)
		}
	}
	if e.Subscription != "" {
		topic, _, err := splitSubscription(e.Subscription)
		if err != nil {
			return err
		}
		if topic != e.Topic {
			return broker.Errorf(broker.ErrInvalid, nil, "ensure %s: subscription %q is of another topic", e.Topic, e.Subscription)
		}
	}
	switch {
	case e.Window > 0:
		return no("Kafka knows no dedup ID, so there is no window (KAF-F-01)")
	case e.MaxDeliveries > 0 && e.DeadLetter == "":
		return no("max deliveries without a dead-letter topic: an offset can't be committed past a message that is kept")
	case e.Lease > 0 && c.opts.Mode == Group:
		return no("a member of a consumer group holds partitions, not leases; the session decides")
	case e.Lease%time.Millisecond != 0:
		return no("a lease that isn't whole milliseconds")
	case e.Ordered && c.opts.Mode == Share:
		return no("a share group keeps no order (KAF-F-51)")
	case e.MaxDeliveries > mostAttempts && c.opts.Mode == Share:
		return no("a share group delivers at most ten times (KAF-F-42)")
	case e.MaxBody > 1<<30-overhead:
		return no("a batch of over 1 GiB")
	}
	return nil
}

func (c *conn) ensureTopic(ctx context.Context, topic string, partitions, maxBody int) error {
	if partitions == 0 {
		partitions = c.opts.Partitions
	}
	wantParts, replicas := int32(-1), int16(-1) // the broker's defaults
	if partitions > 0 {
		wantParts = int32(min(partitions, 1<<20))
	}
	if c.opts.Replicas > 0 {
		replicas = int16(min(c.opts.Replicas, 1<<10))
	}
	cfg := map[string]*string{}
	if maxBody > 0 {
		cfg[cfgMaxBytes] = kadm.StringPtr(strconv.Itoa(maxBody + overhead))
	}
	_, err := c.adm.CreateTopic(ctx, wantParts, replicas, cfg, topic)
	if err == nil {
		return c.settled(ctx, topic)
	}
	if !errors.Is(err, kerr.TopicAlreadyExists) {
		return broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "ensure %s", topic)
	}
	t, err := c.heardOf(ctx, topic)
	if err != nil {
		return err
	}
	if partitions > 0 && len(t.leaders) != partitions {
		return broker.Errorf(broker.ErrConflict, nil, "ensure %s: it has %d partitions, %d are wished for", topic, len(t.leaders), partitions)
	}
	if maxBody > 0 {
		v, err := c.topicConfig(ctx, topic, cfgMaxBytes)
		if err != nil {
			return broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "ensure %s", topic)
		}
		if want := strconv.Itoa(maxBody + overhead); v != want {
			return broker.Errorf(broker.ErrConflict, nil, "ensure %s: %s is %s, a body of %d needs %s", topic, cfgMaxBytes, v, maxBody, want)
		}
	}
	return nil
}

// spread bounds the wait for all brokers to hear of a topic. Each hears from the
// controller by itself, some milliseconds late, and denies the topic until then
// (KAF-F-56). One that takes longer is cut off from the cluster.
const spread = 5 * time.Second

// settled waits until a new topic has all its leaders and every broker that
// answers knows it, so that whoever opens it next finds it, wherever they ask.
func (c *conn) settled(ctx context.Context, topic string) error {
	created := func() error {
		return broker.Errorf(broker.ErrUnavailable, context.Cause(ctx), "ensure %s: created, not ready", topic)
	}
	for wait := 5 * time.Millisecond; ; {
		t, err := c.topicMeta(ctx, topic)
		if err != nil && !errors.Is(err, broker.ErrNotFound) {
			return err
		}
		if err == nil && t.led() {
			break
		}
		if !again(ctx, &wait) {
			return created()
		}
	}
	all, cancel := context.WithTimeout(ctx, spread)
	defer cancel()
	for _, b := range c.admin.DiscoveredBrokers() {
		for wait := 5 * time.Millisecond; ; {
			_, err := describe(all, b, topic)
			if !errors.Is(err, kerr.UnknownTopicOrPartition) || !again(all, &wait) {
				break // it knows, or it is of no use to anybody now
			}
		}
	}
	if ctx.Err() != nil {
		return created()
	}
	return nil
}

// led reports whether all partitions have a leader.
func (t topicInfo) led() bool {
	for _, leader := range t.leaders {
		if leader < 0 {
			return false
		}
	}
	return len(t.leaders) > 0
}

// heardOf asks for a topic that the controller says exists.
func (c *conn) heardOf(ctx context.Context, topic string) (topicInfo, error) {
	soon, cancel := context.WithTimeout(ctx, spread)
	defer cancel()
	for wait := 5 * time.Millisecond; ; {
		t, err := c.topicMeta(ctx, topic)
		if !errors.Is(err, broker.ErrNotFound) || !again(soon, &wait) {
			return t, err
		}
	}
}

// again waits before another question, each time longer, and reports whether
// ctx still lives.
func again(ctx context.Context, wait *time.Duration) bool {
	t := time.NewTimer(*wait)
	defer t.Stop()
	*wait = min(2**wait, 200*time.Millisecond)
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Delete is broker.Admin's.
func (c *conn) Delete(ctx context.Context, e broker.Entity) error {
	var errs []error
	if e.Subscription != "" {
		_, group, err := splitSubscription(e.Subscription)
		if err != nil {
			return err
		}
		if _, err := c.adm.DeleteGroup(ctx, group); gone(err) != nil {
			errs = append(errs, broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "delete group %s", group))
		}
		c.mu.Lock()
		delete(c.wishes, e.Subscription)
		c.mu.Unlock()
	}
	for _, topic := range []string{e.Topic, e.DeadLetter} {
		if topic == "" {
			continue
		}
		if _, err := c.adm.DeleteTopic(ctx, topic); gone(err) != nil {
			errs = append(errs, broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "delete topic %s", topic))
		}
		c.batchMax.Delete(topic)
	}
	return errors.Join(errs...)
}

// gone is err, unless it says that there was nothing to delete.
func gone(err error) error {
	if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.GroupIDNotFound) || errors.Is(err, kerr.UnknownTopicID) {
		return nil
	}
	return err
}
