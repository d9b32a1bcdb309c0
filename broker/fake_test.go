package broker_test

import (
	"context"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
)

// fakePublisher answers by a function; nil means Stored at once.
type fakePublisher struct {
	mu      sync.Mutex
	calls   [][]broker.Message // copies of what each Publish got
	answer  func(ctx context.Context, call int, msgs []broker.Message) []broker.Receipt
	limits  broker.Limits
	now     func() time.Time
	closed  int
	flying  map[*context.CancelFunc]struct{}
	onClose func(ctx context.Context) error
}

func (p *fakePublisher) Publish(ctx context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	p.mu.Lock()
	p.calls = append(p.calls, append([]broker.Message(nil), msgs...))
	n := len(p.calls) - 1
	p.mu.Unlock()
	if p.answer == nil {
		return stored(len(msgs)), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	p.mu.Lock()
	if p.flying == nil {
		p.flying = map[*context.CancelFunc]struct{}{}
	}
	p.flying[&cancel] = struct{}{}
	p.mu.Unlock()
	receipts := p.answer(ctx, n, msgs)
	p.mu.Lock()
	delete(p.flying, &cancel)
	p.mu.Unlock()
	cancel()
	for i := range receipts {
		if receipts[i].Err != nil {
			return receipts, receipts[i].Err
		}
	}
	return receipts, nil
}

func (p *fakePublisher) Limits() broker.Limits { return p.limits }

func (p *fakePublisher) As(target any) bool {
	if t, ok := target.(**fakePublisher); ok {
		*t = p
		return true
	}
	return false
}

func (p *fakePublisher) Now() time.Time {
	if p.now != nil {
		return p.now()
	}
	return time.Now()
}

func (p *fakePublisher) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed++
	if ctx.Err() != nil { // no time to wait: give up on what is in flight
		for cancel := range p.flying {
			(*cancel)()
		}
	}
	p.mu.Unlock()
	if p.onClose != nil {
		return p.onClose(ctx)
	}
	return nil
}

// sent returns the IDs of each Publish.
func (p *fakePublisher) sent() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([][]string, len(p.calls))
	for i, msgs := range p.calls {
		for j := range msgs {
			ids[i] = append(ids[i], msgs[j].ID)
		}
	}
	return ids
}

func stored(n int) []broker.Receipt {
	receipts := make([]broker.Receipt, n)
	for i := range receipts {
		receipts[i].Verdict = broker.Stored
	}
	return receipts
}

func unknown(n int) []broker.Receipt {
	receipts := make([]broker.Receipt, n)
	for i := range receipts {
		receipts[i].Err = broker.Errorf(broker.ErrUnknownOutcome, nil, "fake")
	}
	return receipts
}

func refused(n int, kind error) []broker.Receipt {
	receipts := make([]broker.Receipt, n)
	for i := range receipts {
		receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: broker.Errorf(kind, nil, "fake")}
	}
	return receipts
}

var _ broker.Publisher = (*fakePublisher)(nil)
