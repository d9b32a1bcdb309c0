package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
)

// How a transaction ended, as far as it could be found out.
type ending uint8

const (
	undecided ending = iota
	doneCommit
	doneAbort
)

// endAs brings a transaction to an end and finds out which it was. commit says what
// is asked for; what has happened already stands. It asks the coordinator under the
// transaction's own identity, for which it is no new request but the repeat of the
// first: a coordinator that has done it says so, and one that did the opposite refuses
// (KAF-F-301). One that has gone on to another epoch knows nothing of it any more.
// Then the log does: the marker behind the transaction's last record. err says why
// nothing is known, and for doneAbort what the coordinator said.
func endAs(ctx context.Context, cl *kgo.Client, c *conn, p proof, commit bool) (ending, error) {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.ID, p.Producer, p.Epoch, commit
	err := untilAnswered(ctx, func() error {
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	})
	switch {
	case err == nil && commit:
		return doneCommit, nil
	case err == nil:
		return doneAbort, nil
	case !fencedProducer(err) && !errors.Is(err, kerr.InvalidTxnState) && !errors.Is(err, kerr.UnknownProducerID):
		return undecided, err
	}
	done, looked := c.marker(ctx, p, true)
	if done == undecided {
		return undecided, errors.Join(err, looked)
	}
	return done, err
}

// untilAnswered repeats f while its error is one that passes, until ctx ends.
func untilAnswered(ctx context.Context, f func() error) error {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		err := f()
		if err == nil || !passing(err) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// passing reports that the same request may succeed later: no answer came, or one that
// speaks of the moment.
func passing(err error) bool {
	var ke *kerr.Error
	switch {
	case errors.Is(err, broker.ErrLeaseLost), errors.Is(err, kgo.ErrClientClosed):
		return false
	case errors.As(err, &ke):
		return ke.Retriable || errors.Is(err, kerr.ConcurrentTransactions) || errors.Is(err, kerr.UnknownServerError)
	}
	return err != nil
}

// marker looks in the log how a transaction ended: behind its records the coordinator
// writes a marker into each of its partitions. The partition's last stable offset says
// little of it, for it stays before the transactions of others that are open. With wait
// the marker is waited for; otherwise a transaction without one is undecided, without
// an error.
func (c *conn) marker(ctx context.Context, p proof, wait bool) (ending, error) {
	if p.Topic == "" {
		return undecided, errors.New("the transaction has no record to look at")
	}
	partition, err := strconv.ParseInt(p.Partition, 10, 32)
	if err != nil {
		return undecided, broker.Errorf(broker.ErrInvalid, err, "partition %q", p.Partition)
	}
	l := markerLog{proof: p, partition: int32(partition), next: p.Offset}
	l.cl, err = kgo.NewClient(c.client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{p.Topic: {l.partition: kgo.NewOffset().At(p.Offset)}}),
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	)...)
	if err != nil {
		return undecided, err
	}
	defer l.cl.Close()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		// In this order: of what has ended by the first, the second is behind the marker.
		stable, err := offsetOf(ctx, c.adm.ListCommittedOffsets, p.Topic, l.partition)
		var end int64
		if err == nil {
			end, err = offsetOf(ctx, c.adm.ListEndOffsets, p.Topic, l.partition)
		}
		if err == nil {
			done, err := l.read(ctx, end)
			switch {
			case done != undecided || err != nil:
				return done, err
			case stable > p.Offset:
				return undecided, errors.New("the log has no marker for the transaction")
			case !wait:
				return undecided, nil
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return undecided, errors.Join(context.Cause(ctx), err)
		}
	}
}

// offsetOf is one partition's offset of those that list lists.
func offsetOf(ctx context.Context, list func(context.Context, ...string) (kadm.ListedOffsets, error), topic string, partition int32) (int64, error) {
	os, err := list(ctx, topic)
	if err != nil {
		return 0, err
	}
	o, ok := os.Lookup(topic, partition)
	if !ok {
		return 0, kerr.UnknownTopicOrPartition
	}
	return o.Offset, o.Err
}

// markerLog reads a partition from the transaction's record on.
type markerLog struct {
	proof
	cl        *kgo.Client
	partition int32
	next      int64 // what is read next
}

// read reads up to end for the first marker of the transaction's producer, which is its
// own: a producer has one transaction at a time.
func (l *markerLog) read(ctx context.Context, end int64) (ending, error) {
	for l.next < end {
		fetches := l.cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return undecided, context.Cause(ctx)
		}
		for _, fe := range fetches.Errors() {
			var ke *kerr.Error
			if errors.As(fe.Err, &ke) && !ke.Retriable {
				return undecided, fe.Err
			}
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			if l.next == l.Offset && r.Offset != l.Offset {
				return undecided, errors.New("the log doesn't hold the transaction's records any more")
			}
			l.next = r.Offset + 1
			if r.Attrs.IsControl() && r.ProducerID == l.Producer {
				return endingOf(r.Key)
			}
		}
	}
	return undecided, nil
}

// endingOf reads a marker's key: a version and a type, of two bytes each.
func endingOf(key []byte) (ending, error) {
	if len(key) < 4 {
		return undecided, errors.New("a marker that can't be read")
	}
	switch binary.BigEndian.Uint16(key[2:]) {
	case 0:
		return doneAbort, nil
	case 1:
		return doneCommit, nil
	}
	return undecided, errors.New("a marker of an unknown type")
}
