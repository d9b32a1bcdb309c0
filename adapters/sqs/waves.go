package sqs

import (
	"context"
	"errors"

	"github.com/onceline/onceline/broker"
)

// The order of a key on a FIFO queue. The service keeps the order in which it
// took messages of a group, and a batch's entries fail one by one: with two of a
// key in one request, or in two at a time, the second can be stored without the
// first, and a retry of the first comes behind it for good. So the i-th message
// of a key is in the i-th wave of a call, and is sent when its predecessor is
// known to be stored. Where that isn't known, those behind it are Refused with
// ErrUnavailable, so that a retry sends them all, in order.

// waves sends the messages wave by wave.
func (x *publishing) waves(ctx context.Context) {
	order, ends := planWaves(x.msgs)
	if order == nil {
		x.wave(ctx, nil)
		return
	}
	var blocked map[string]struct{} // keys; made at the first failure
	from := 0
	for _, to := range ends {
		wave := order[from:to]
		from = to
		if blocked != nil {
			wave = x.unblocked(wave, blocked)
		}
		if len(wave) == 0 {
			continue
		}
		x.wave(ctx, wave)
		for _, i := range wave {
			if x.msgs[i].Key != "" && x.blocks(i) {
				if blocked == nil {
					blocked = map[string]struct{}{}
				}
				blocked[x.msgs[i].Key] = struct{}{}
			}
		}
	}
}

// blocks reports whether those of its key behind message i must wait for it: it
// isn't known to be stored, and may be once it is sent again.
func (x *publishing) blocks(i int) bool {
	r := &x.receipts[i]
	return !r.Verdict.OK() && !errors.Is(r.Err, broker.ErrInvalid) && !errors.Is(r.Err, broker.ErrTooLarge)
}

// unblocked refuses the messages of blocked keys and returns the others. It
// reuses places.
func (x *publishing) unblocked(places []int, blocked map[string]struct{}) []int {
	keep := places[:0]
	for _, i := range places {
		if _, behind := blocked[x.msgs[i].Key]; behind {
			x.receipts[i] = broker.Receipt{Verdict: broker.Refused,
				Err: broker.Errorf(broker.ErrUnavailable, errBehind, "publish %q to %s: not sent", x.msgs[i].ID, x.p.q.Name)}
			continue
		}
		keep = append(keep, i)
	}
	return keep
}

// planWaves returns the places of the messages sorted by wave and where each
// wave ends, or nil for a single one.
func planWaves(msgs []broker.Message) (order, ends []int) {
	wave := make([]int, len(msgs))
	most := 0
	if len(msgs) <= batchSize {
		// Too few for a map to pay.
		for i := range msgs {
			if msgs[i].Key == "" {
				continue
			}
			for j := i - 1; j >= 0; j-- {
				if msgs[j].Key == msgs[i].Key {
					wave[i] = wave[j] + 1
					break
				}
			}
			most = max(most, wave[i])
		}
	} else {
		seen := make(map[string]int, len(msgs))
		for i := range msgs {
			if key := msgs[i].Key; key != "" {
				wave[i] = seen[key]
				seen[key]++
				most = max(most, wave[i])
			}
		}
	}
	if most == 0 {
		return nil, nil
	}
	ends = make([]int, most+1)
	for _, w := range wave {
		ends[w]++
	}
	for w := 1; w <= most; w++ {
		ends[w] += ends[w-1]
	}
	order = make([]int, len(msgs))
	at := make([]int, most+1) // the next place of each wave
	copy(at[1:], ends[:most])
	for i, w := range wave {
		order[at[w]] = i
		at[w]++
	}
	return order, ends
}

// packed sends the messages in their order, ten at a time, one request after the
// other: what PackKeys asks for.
func (x *publishing) packed(ctx context.Context) {
	var blocked map[string]struct{}
	places := make([]int, 0, batchSize)
	for next := 0; next < len(x.msgs); {
		c := chunks.Get().(*chunk)
		places = places[:0]
		for next < len(x.msgs) && c.n < batchSize {
			i := next
			if blocked != nil && len(x.unblocked([]int{i}, blocked)) == 0 {
				next++
				continue
			}
			if !x.add(c, i) {
				break
			}
			places = append(places, i)
			next++
		}
		if c.n == 0 {
			c.release()
			continue
		}
		x.send(ctx, c)
		for _, i := range places {
			if x.msgs[i].Key != "" && x.blocks(i) {
				if blocked == nil {
					blocked = map[string]struct{}{}
				}
				blocked[x.msgs[i].Key] = struct{}{}
			}
		}
	}
}
