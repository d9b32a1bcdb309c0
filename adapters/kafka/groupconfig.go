package kafka

import (
	"context"
	"errors"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
)

// ensureShareGroup writes the group's configuration. From where it begins is
// always written, for the broker's default skips what is there (KAF-F-44); so is that
// only committed messages are delivered.
func (c *conn) ensureShareGroup(ctx context.Context, group string, e *broker.Entity) error {
	reset := "earliest"
	if c.opts.Latest {
		reset = "latest"
	}
	if err := c.alterGroup(ctx, group, cfgReset, reset); err != nil {
		return err
	}
	// By default a share group delivers what was never committed (KAF-F-400).
	if err := c.alterGroup(ctx, group, cfgIsolation, "read_committed"); err != nil {
		return err
	}
	if e.Lease > 0 {
		if err := c.alterGroup(ctx, group, cfgLock, strconv.FormatInt(e.Lease.Milliseconds(), 10)); err != nil {
			return err
		}
	}
	if e.MaxDeliveries == 0 {
		return nil
	}
	// The adapter moves a message to the dead-letter topic after MaxDeliveries.
	// At its own limit the broker drops it, so that one is set as high as it
	// goes: a consumer that crashes each time must not cost the message.
	err := c.alterGroup(ctx, group, cfgCount, strconv.Itoa(mostAttempts))
	if err == nil || errors.Is(err, broker.ErrUnauthorized) || errors.Is(err, broker.ErrUnavailable) {
		return err
	}
	// Before 4.3 the limit is the broker's alone (KAF-F-40).
	limit := c.countLimit(ctx, group)
	if e.MaxDeliveries > limit {
		return broker.Errorf(broker.ErrUnsupported, err, "ensure %s: %d deliveries, the broker drops a message after %d", group, e.MaxDeliveries, limit)
	}
	return nil
}

// alterGroup sets one configuration value of a group.
func (c *conn) alterGroup(ctx context.Context, group, key, value string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	kv := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	kv.Name, kv.Value = key, &value
	res.Configs = append(res.Configs, kv)
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, c.admin)
	if err != nil {
		return broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "ensure group %s: %s=%s", group, key, value)
	}
	for _, r := range resp.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			kind := kindOf(err, broker.ErrUnsupported)
			if kind == broker.ErrRefused {
				kind = broker.ErrUnsupported // a value outside of the broker's bounds
			}
			return broker.Errorf(kind, err, "ensure group %s: %s=%s", group, key, value)
		}
	}
	return nil
}

// countLimit is how often the broker delivers a message of a share group before
// it drops it: what the group's configuration says, or else the broker's, or
// else Kafka's default (KAF-F-42).
func (c *conn) countLimit(ctx context.Context, group string) int {
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	req.Resources = append(req.Resources, res)
	if resp, err := req.RequestWith(ctx, c.admin); err == nil {
		for _, r := range resp.Resources {
			for _, kv := range r.Configs {
				if kv.Name == cfgCount && kv.Value != nil {
					if n, err := strconv.Atoi(*kv.Value); err == nil && n > 0 {
						return n
					}
				}
			}
		}
	}
	if rs, err := c.adm.DescribeBrokerConfigs(ctx); err == nil {
		if v, _ := valueOf(rs, cfgCountAll); v != "" {
			if n, err := strconv.Atoi(v); err == nil && n > 0 {
				return n
			}
		}
	}
	return 5
}
