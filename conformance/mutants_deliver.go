package conformance

import (
	"context"
	"strings"
	"sync"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// bodyAsText takes a body for UTF-8, as an adapter does that sends JSON.
func bodyAsText(m *broker.Message) { m.Body = []byte(strings.ToValidUTF8(string(m.Body), "\uFFFD")) }

// dropRepeats keeps one header of a name, as an adapter does that has a map.
func dropRepeats(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
	err := next.Receive(ctx, max, out)
	for i := range out.Len() {
		d := out.At(i)
		seen := map[string]bool{}
		var kept broker.Headers
		for _, h := range d.Headers {
			if !seen[h.Key] {
				kept = append(kept, h)
			}
			seen[h.Key] = true
		}
		d.Headers = kept
	}
	return err
}

// fetchAhead asks for more than is wanted and lets the rest age.
func fetchAhead(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
	err := next.Receive(ctx, max+4, out)
	out.Keep(max)
	return err
}

// dropReasons dead-letters without saying why.
func dropReasons(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	for i := range ops {
		ops[i].Settlement.Reason = ""
	}
	next.Settle(ctx, ops)
}

// ackDeadLetters takes a message that is to be dead-lettered for done.
func ackDeadLetters(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	for i := range ops {
		if ops[i].Settlement.Action == broker.DeadLetter {
			ops[i].Settlement.Action = broker.Ack
		}
	}
	next.Settle(ctx, ops)
}

// leak closes nothing, and gives nothing back.
func leak(context.Context, driver.Receiver) error { return nil }

// forgetAttempts takes each delivery for the first.
func forgetAttempts(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
	err := next.Receive(ctx, max, out)
	for i := range out.Len() {
		out.At(i).Attempt.Number = 1
	}
	return err
}

// countHere counts deliveries in the receiver, whatever the broker says.
func countHere() func(context.Context, driver.Receiver, int, *driver.Batch) error {
	type seen struct {
		r  driver.Receiver
		id string
	}
	var mu sync.Mutex
	times := map[seen]int{}
	return func(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
		err := next.Receive(ctx, max, out)
		mu.Lock()
		defer mu.Unlock()
		for i := range out.Len() {
			d := out.At(i)
			times[seen{next, d.ID}]++
			d.Attempt.Number = times[seen{next, d.ID}]
		}
		return err
	}
}

// lastFirst fetches a few more than it is asked for and hands out the latest first, as a
// stack does.
func lastFirst() func(context.Context, driver.Receiver, int, *driver.Batch) error {
	var mu sync.Mutex
	stacks := map[driver.Receiver][]hand{}
	return func(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
		mu.Lock()
		stack := stacks[next]
		mu.Unlock()
		if len(stack) == 0 {
			var all driver.Batch
			all.Grow(max + 3)
			if err := next.Receive(ctx, max+3, &all); err != nil {
				return err
			}
			stack = hands(&all)
		}
		for range min(max, len(stack)) {
			stack[len(stack)-1].add(out)
			stack = stack[:len(stack)-1]
		}
		mu.Lock()
		defer mu.Unlock()
		stacks[next] = stack
		return nil
	}
}

// strand leaves its request to the broker running when the caller's context ends, and
// drops what that brings.
func strand() func(context.Context, driver.Receiver, int, *driver.Batch) error {
	var mu sync.Mutex
	asking := map[driver.Receiver]chan struct{}{}
	return func(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
		mu.Lock()
		before := asking[next]
		delete(asking, next)
		mu.Unlock()
		if before != nil {
			select {
			case <-before:
			case <-ctx.Done():
				mu.Lock()
				asking[next] = before
				mu.Unlock()
				return context.Cause(ctx)
			}
		}
		var all driver.Batch
		all.Grow(max)
		var err error
		done := make(chan struct{})
		go func() {
			defer close(done)
			err = next.Receive(context.WithoutCancel(ctx), max, &all)
		}()
		select {
		case <-done:
			for _, h := range hands(&all) {
				h.add(out)
			}
			return err
		case <-ctx.Done():
			mu.Lock()
			defer mu.Unlock()
			asking[next] = done
			return context.Cause(ctx)
		}
	}
}

// hearNothing asks the broker without the caller's context.
func hearNothing(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
	return next.Receive(context.WithoutCancel(ctx), max, out)
}

// ignoreStart begins where the broker would, whatever position is asked for.
func ignoreStart(o broker.ReceiverOptions) broker.ReceiverOptions {
	o.StartFrom = nil
	return o
}
