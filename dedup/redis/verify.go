package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/onceline/onceline/dedup"
)

// Verify reports which of the servers may evict records before their time, with what
// to change, as an error that is [dedup.ErrVerify]; nil if none. New calls it; as the
// policy can be changed while a server runs, call it from time to time. It asks INFO
// of each node that the client knows, replicas included, which may become primaries.
func (s *Store) Verify(ctx context.Context) error {
	nodes := s.client.Nodes()
	if len(nodes) == 0 {
		return fmt.Errorf("%w: redis: the client knows no server", dedup.ErrLost)
	}
	var errs []error
	for name, node := range nodes {
		ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
		info, err := node.Do(ctx, node.B().Info().Section("memory").Build()).ToString()
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("dedup/redis: verify %s: %w", name, sort(err)))
			continue
		}
		switch policy := field(info, "maxmemory_policy"); policy {
		case "noeviction":
		case "":
			errs = append(errs, fmt.Errorf("%w: redis %s: it doesn't say its maxmemory-policy, which has to be noeviction", dedup.ErrVerify, name))
		default:
			errs = append(errs, fmt.Errorf("%w: redis %s: maxmemory-policy is %s: when memory is short the records of messages that are done go, and their copies are applied again; set it to noeviction, or use a server of its own", dedup.ErrVerify, name, policy))
		}
	}
	return errors.Join(errs...)
}

// field returns a field of what INFO says.
func field(info, name string) string {
	for line := range strings.SplitSeq(info, "\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
