package localstack

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Replication returns who holds a stream. It is an error that nobody leads it, which
// takes a second to be found out.
func (c *NATSCluster) Replication(ctx context.Context, stream string) (Replication, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(); err != nil {
		return Replication{}, err
	}
	info, err := c.backend.info(ctx, c.DirectURL(), stream)
	if err != nil {
		return Replication{}, fmt.Errorf("localstack: nats: replication of stream %s: %w", stream, err)
	}
	r := Replication{InSync: 1}
	if r.Leader, err = strconv.Atoi(strings.TrimPrefix(info.Leader, natsNodePrefix)); err != nil || r.Leader < 0 || r.Leader >= len(c.backend.nodes) {
		return Replication{}, fmt.Errorf("localstack: nats: stream %s is led by %q", stream, info.Leader)
	}
	for _, peer := range info.Replicas {
		if !peer.Offline && peer.Lag <= natsLag {
			r.InSync++
		}
	}
	return r, nil
}

// natsLag is how many entries a replica may be behind that counts as in sync: while
// messages are published one is always a little late.
const natsLag = 100

// natsAsk bounds one question: nobody ever answers one that is asked while the stream
// has no leader, not even when it has one again (NATS-F-44).
const natsAsk = time.Second

// info asks the stream's leader.
func (b *natsCluster) info(ctx context.Context, url, stream string) (*jetstream.ClusterInfo, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, natsAsk, errors.New("nobody leads it, or nobody answers"))
	defer cancel()
	nc, err := nats.Connect(url, nats.Timeout(time.Second), nats.NoReconnect(),
		nats.UserInfo(b.config.User, b.config.Password), nats.Token(b.config.Token))
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	info, err := s.Info(ctx)
	if err != nil {
		return nil, err
	}
	if info.Cluster == nil {
		return nil, errors.New("it is on one node alone")
	}
	return info.Cluster, nil
}
