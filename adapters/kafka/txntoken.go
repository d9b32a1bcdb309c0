package kafka

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// proof is what is needed to end a transaction, or to learn how it ended, without the
// process that began it: the identity it runs under and one of its records.
type proof struct {
	ID        string `json:"id"` // the transactional one
	Producer  int64  `json:"producer"`
	Epoch     int16  `json:"epoch"`
	Raises    bool   `json:"raises"` // transaction.version 2
	Topic     string `json:"topic,omitempty"`
	Partition string `json:"partition,omitempty"`
	Offset    int64  `json:"offset,omitempty"`
	Empty     bool   `json:"empty,omitempty"`
	Cluster   string `json:"cluster,omitempty"`
}

// tokenKind is what a token of this adapter begins with.
const tokenKind = "onceline/kafka/transaction/1 "

// token is the proof as the caller keeps it.
func (p proof) token(ctx context.Context, c *conn) ([]byte, error) {
	m, err := c.adm.BrokerMetadata(ctx)
	if err != nil {
		return nil, broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "prepare on %s", p.ID)
	}
	p.Cluster = m.Cluster
	body, err := json.Marshal(p)
	if err != nil {
		return nil, broker.Errorf(broker.ErrInvalid, err, "prepare on %s", p.ID)
	}
	return append([]byte(tokenKind), body...), nil
}

func parseToken(token []byte) (p proof, err error) {
	if len(token) < len(tokenKind) || string(token[:len(tokenKind)]) != tokenKind {
		return p, broker.Errorf(broker.ErrInvalid, nil, "recover transaction: not a token of this adapter")
	}
	if err := json.Unmarshal(token[len(tokenKind):], &p); err != nil {
		return p, broker.Errorf(broker.ErrInvalid, err, "recover transaction: token")
	}
	if p.ID == "" || !p.Empty && (p.Topic == "" || p.Producer < 0 || p.Epoch < 0 || p.Offset < 0) {
		return p, broker.Errorf(broker.ErrInvalid, nil, "recover transaction: the token lacks fields")
	}
	return p, nil
}

// RecoverTransaction is driver.Recovering's.
func (c *conn) RecoverTransaction(ctx context.Context, token []byte, commit bool) broker.Outcome {
	p, err := parseToken(token)
	if err != nil {
		return broker.Outcome{Err: err}
	}
	m, err := c.adm.BrokerMetadata(ctx)
	switch {
	case err != nil:
		return broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, err, "recover transaction of %s", p.ID)}
	case p.Cluster != m.Cluster:
		return broker.Outcome{Err: broker.Errorf(broker.ErrInvalid, nil, "recover transaction of %s: it is of cluster %s, this is %s", p.ID, p.Cluster, m.Cluster)}
	case p.Empty:
		return broker.Outcome{State: broker.Confirmed}
	}
	done, err := c.recoverAs(ctx, p, commit)
	switch {
	case done == undecided:
		return broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, err, "recover transaction of %s", p.ID)}
	case (done == doneCommit) == commit:
		return broker.Outcome{State: broker.Confirmed}
	case commit:
		return broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrAborted, err, "recover transaction of %s: the broker aborted it: it outlived its time, or the ID was opened again", p.ID)}
	}
	return broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrConflict, err, "recover transaction of %s: it is committed", p.ID)}
}

// recoverAs looks before it asks: where transactions don't raise the epoch, the holder
// may have gone on to another transaction under the same identity, and a request to
// end the one that is decided would end that one.
func (c *conn) recoverAs(ctx context.Context, p proof, commit bool) (ending, error) {
	done, err := c.marker(ctx, p, false)
	if done != undecided || err != nil {
		return done, err
	}
	cl, err := kgo.NewClient(c.client(versionsFor(p.Raises)...)...)
	if err != nil {
		return undecided, errors.Join(broker.ErrInvalid, err)
	}
	defer cl.Close()
	return endAs(ctx, cl, c, p, commit)
}

var (
	_ driver.Transacting = (*conn)(nil)
	_ driver.Recovering  = (*conn)(nil)
)
