package sqs_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Many senders and receivers at once: each message arrives once, and in a FIFO
// queue each group in order.
func TestConcurrent(t *testing.T) {
	w := onLoopback(t)
	for _, url := range []string{w.queue("q"), w.fifo("q")} {
		fifo := len(url) > 5 && url[len(url)-5:] == ".fifo"
		const senders, batches, receivers = 3, 6, 3
		var sending, receiving sync.WaitGroup
		for s := range senders {
			sending.Go(func() {
				for b := range batches {
					var in []types.SendMessageBatchRequestEntry
					for i := range 10 {
						body := fmt.Sprintf("%d %03d", s, b*10+i)
						e := types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), MessageBody: &body}
						if fifo {
							e.MessageGroupId, e.MessageDeduplicationId = aws.String(fmt.Sprint(s)), aws.String(fmt.Sprint(s, "-", b, "-", i))
						}
						in = append(in, e)
					}
					if _, err := w.c.SendMessageBatch(w.ctx(), &sdk.SendMessageBatchInput{QueueUrl: &url, Entries: in}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		var mu sync.Mutex
		got := map[string][]string{}
		total := 0
		for range receivers {
			receiving.Go(func() {
				for {
					ms, err := w.tryReceive(url, 10, wait(time.Second), lease(time.Hour))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, m := range ms {
						got[(*m.Body)[:1]] = append(got[(*m.Body)[:1]], (*m.Body)[2:])
					}
					total += len(ms)
					done := total >= senders*batches*10
					mu.Unlock()
					for _, m := range ms {
						if err := w.delete(url, m); err != nil {
							t.Error(err)
						}
					}
					if done {
						return
					}
				}
			})
		}
		sending.Wait()
		receiving.Wait()
		for s := range senders {
			seen := got[fmt.Sprint(s)]
			ordered := slices.IsSorted(seen)
			slices.Sort(seen)
			if len(slices.Compact(seen)) != batches*10 || len(seen) != batches*10 || fifo && !ordered {
				t.Errorf("%s: sender %d: %d messages, in order %v", url, s, len(seen), ordered)
			}
		}
		w.want("left", w.counts(url), [3]string{"0", "0", "0"})
	}
}
