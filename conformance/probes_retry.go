package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// lostAnswer publishes m with the answer lost: the broker applied it, and the
// publisher could not know.
func (b *Bench) lostAnswer(ctx context.Context, p broker.Publisher, m broker.Message, cut bool) error {
	i, err := b.Inject(Fault{Op: OnPublish, Kind: LoseResponse, Times: 1, Cut: cut})
	if err != nil {
		return err
	}
	defer i.Remove()
	try, cancel := context.WithCancel(ctx)
	defer cancel()
	receipts := make(chan broker.Receipt, 1)
	go func() { receipts <- b.Publish(try, p, m)[0] }()
	if err := b.Applied(ctx, i); err != nil {
		return err
	}
	cancel() // the caller gives up; only now, so that the answer was really lost
	r := <-receipts
	if r.Verdict != broker.Unknown {
		b.Note("the publish whose answer was lost ended as %s: the client's own retry had an answer before the caller gave up", r.Verdict)
	}
	if r.Verdict.OK() && !cut {
		return fmt.Errorf("publish %q: nobody heard the answer, and the receipt says %s", m.ID, r.Verdict)
	}
	if r.Verdict == broker.Refused {
		return fmt.Errorf("publish %q: the broker stored it, and the receipt says Refused: %w", m.ID, r.Err)
	}
	return nil
}

// probeLostResponse. Anomaly: the answer is lost, the producer retries, and the
// message is there twice. Experiment: drop the answer after the broker was seen
// to apply the publish, let the caller give up, and publish the same message
// again with the same publisher.
func probeLostResponse(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	m := b.Message()
	if err := b.lostAnswer(ctx, e.pub, m, b.Target.CutLost); err != nil {
		return err
	}
	if _, err := b.MustPublish(ctx, e.pub, m); err != nil {
		return err
	}
	n, err := b.stored(ctx, e, m)
	if err != nil {
		return err
	}
	b.Answer(boundary.PublishDedupLostResponse, times(n), "stored %s after a retry by the same publisher", often(n))
	return nil
}

// probeNewProducer. Anomaly: as above, but the producer restarted in between and
// with it all that its client knew. Experiment: as above, the retry from a new
// connection.
func probeNewProducer(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	m := b.Message()
	old, err := b.Conn(ctx)
	if err != nil {
		return err
	}
	p, err := b.Publisher(ctx, old)
	if err != nil {
		return err
	}
	if err := b.lostAnswer(ctx, p, m, true); err != nil {
		return err
	}
	end, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := old.Close(end); err != nil {
		b.Note("closing the first producer: %v", err)
	}
	b.history.Add(report.Producer, "restart", "", "a new producer takes over")
	if _, err := b.MustPublish(ctx, e.pub, m); err != nil {
		return err
	}
	n, err := b.stored(ctx, e, m)
	if err != nil {
		return err
	}
	b.Answer(boundary.PublishDedupNewProducer, times(n), "stored %s after a retry by a new producer", often(n))
	return nil
}

// probeBrokerRestart. Anomaly: the broker forgets its IDs as it restarts.
// Experiment: publish, restart the broker cleanly, publish the same again.
func probeBrokerRestart(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	m := b.Message()
	if _, err := b.MustPublish(ctx, e.pub, m); err != nil {
		return err
	}
	if err := b.Restart(ctx); err != nil {
		return err
	}
	after, err := b.reopen(ctx, e)
	if errors.Is(err, broker.ErrNotFound) {
		b.Answer(boundary.PublishDedupBrokerRestart, boundary.Lost, "the topic itself is gone, with the first message: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := b.MustPublish(ctx, after.pub, m); err != nil {
		return err
	}
	n, err := b.stored(ctx, after, m)
	if err != nil {
		return err
	}
	b.Answer(boundary.PublishDedupBrokerRestart, times(n), "stored %s", often(n))
	return nil
}

// probeAfterConsume. Anomaly: dedup looks at what is queued, and a message that
// was consumed is let in again. Experiment: publish, receive, ack, publish the
// same again.
func probeAfterConsume(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	d, err := b.handOver(ctx, e)
	if err != nil {
		return err
	}
	if err := b.MustAck(ctx, e.rcv, &d); err != nil {
		return err
	}
	m := broker.Message{ID: d.ID, Key: d.Key, Body: d.Body}
	if _, err := b.MustPublish(ctx, e.pub, m); err != nil {
		return err
	}
	copies, err := b.Copies(ctx, e.pub, e.rcv)
	if err != nil {
		return err
	}
	n := 1 + copies[m.ID]
	b.Answer(boundary.PublishDedupAfterConsume, times(n), "stored %s, the first consumed and acked before the second publish", often(n))
	return nil
}

// probeConcurrent. Anomaly: two attempts race past the check for the ID.
// Experiment: twenty times, two publishers on two connections send one ID at
// the same moment; a single pair that is stored twice decides.
func probeConcurrent(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	c, err := b.Conn(ctx)
	if err != nil {
		return err
	}
	rival, err := b.Publisher(ctx, c)
	if err != nil {
		return err
	}
	ms := b.Messages(20)
	for i := range ms {
		var pair sync.WaitGroup
		for _, p := range []broker.Publisher{e.pub, rival} {
			pair.Go(func() { b.Publish(ctx, p, ms[i]) })
		}
		pair.Wait()
	}
	copies, err := b.Copies(ctx, e.pub, e.rcv, ms...)
	if err != nil {
		return err
	}
	worst, twice := 1, 0
	for i := range ms {
		n := copies[ms[i].ID]
		if n == 0 {
			b.Answer(boundary.PublishDedupConcurrent, boundary.Lost, "%q was sent twice and is not there", ms[i].ID)
			return nil
		}
		if n > 1 {
			twice++
		}
		worst = max(worst, n)
	}
	b.Answer(boundary.PublishDedupConcurrent, times(worst), "of %d IDs sent by two publishers at once, %d are stored twice", len(ms), twice)
	return nil
}
