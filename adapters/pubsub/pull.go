package pubsub

import (
	"context"
	"math/rand/v2"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceline/onceline/broker"
)

// pullGrace is how long the answer to a pull may take beyond the time that the
// service was asked to answer in. Then the pull is given up, and what it may
// bring comes again after its lease.
const pullGrace = 10 * time.Second

// askedBy is a context that tells the service an earlier deadline than the
// client's own. gRPC sends the deadline along, and the service answers some time
// before it (PS-F-41); were the client to give up at the same moment, messages on
// their way to it would be leased to nobody. So a pull is never cancelled while it
// may bring something, but for the case that no answer comes at all. What a server
// hands out in the very last moment it may still lose itself, as it cuts its
// answers off at the deadline: the longer [PullWait], the rarer.
type askedBy struct {
	context.Context
	at time.Time
}

func (a askedBy) Deadline() (time.Time, bool) { return a.at, true }

// pull is one Pull request. It outlives the Receive that was cancelled while it
// ran: the next one takes it over, or what it brings is given back.
type pull struct {
	asked time.Time     // by the connection's clock, before the request
	done  chan struct{} // closed when msgs and err are set
	msgs  []*pb.ReceivedMessage
	err   error
	took  time.Duration

	finished, abandoned bool // guarded by the receiver's mutex
}

// begin returns the pull that a cancelled Receive left running, or a new one for
// most messages; nil once Close has given up on this Receive.
func (r *receiver) begin(most int) *pull {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shut {
		return nil
	}
	if p := r.running; p != nil {
		r.running = nil
		if !p.finished {
			p.abandoned = false
			return p
		}
	}
	p := &pull{asked: r.c.Now(), done: make(chan struct{})}
	r.pulls.Add(1)
	go r.run(p, most)
	return p
}

// run carries out a pull. It ends with the service's answer, at the latest after
// the pull's wait and pullGrace, or when Close can't wait for it any more.
func (r *receiver) run(p *pull, most int) {
	defer r.pulls.Done()
	begin := time.Now()
	ctx, cancel := context.WithTimeout(r.life, r.wait+pullGrace)
	defer cancel()
	res, err := r.c.subs.Pull(askedBy{ctx, begin.Add(r.wait)},
		&pb.PullRequest{Subscription: r.name, MaxMessages: int32(min(most, maxPull))}, once)
	p.took = time.Since(begin)
	p.msgs, p.err = res.GetReceivedMessages(), err
	r.mu.Lock()
	p.finished = true
	orphan := p.abandoned
	r.mu.Unlock()
	close(p.done)
	if orphan && len(p.msgs) > 0 {
		// Lost, they come again after their lease.
		_ = r.giveBack(r.life, p.msgs)
	}
}

// maxPull is the most that one pull asks for.
const maxPull = 1000

// abandon leaves a pull running, and reports false if it has finished: then its
// messages are the caller's.
func (r *receiver) abandon(p *pull) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.finished {
		return false
	}
	p.abandoned = true
	r.running = p
	return true
}

// await waits for a pull's messages. It returns no messages and no error where
// the pull is to be made again; spent counts how often that was so in vain.
func (r *receiver) await(ctx context.Context, p *pull, spent *int) ([]*pb.ReceivedMessage, error) {
	var left error
	select {
	case <-p.done:
	case <-ctx.Done():
		left = context.Cause(ctx)
	case <-r.closing:
		left = broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.name)
	}
	if left != nil {
		if r.abandon(p) {
			return nil, left
		}
		<-p.done
	}
	if p.err == nil && len(p.msgs) > 0 {
		return p.msgs, nil
	}
	if left != nil {
		return nil, left
	}
	switch code := status.Code(p.err); code {
	case codes.OK, codes.DeadlineExceeded:
		if p.took >= r.wait/4 {
			*spent = 0
			return nil, nil // nothing came
		}
		// A server that doesn't wait would be asked in a tight loop.
	case codes.Unavailable, codes.Internal, codes.Unknown, codes.Aborted, codes.ResourceExhausted, codes.Canceled:
		if *spent >= patience && code != codes.Unavailable {
			return nil, failure(ctx, p.err, "receive from %s", r.name)
		}
	default:
		return nil, failure(ctx, p.err, "receive from %s", r.name)
	}
	*spent++
	return nil, r.pause(ctx, *spent)
}

// patience is after how many failures in a row Receive returns one that doesn't
// say that the connection is down.
const patience = 20

// pause waits a while that grows with the number of tries, with jitter.
func (r *receiver) pause(ctx context.Context, tries int) error {
	t := time.NewTimer(backoff(tries))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.closing:
		return broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.name)
	}
}

// backoff is up to 20 ms at first, and doubles up to 640 ms.
func backoff(tries int) time.Duration {
	top := 20 * time.Millisecond << min(max(tries-1, 0), 5)
	return top/2 + rand.N(top/2)
}
