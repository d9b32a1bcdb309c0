package sqs

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/internal/bubbletest"
)

func newRequest(t testing.TB, op, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://sqs.local/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Amz-Target", "AmazonSQS."+op)
	return r
}

// A random run of all operations on a FIFO queue, against the rules in their
// plainest form: every message is there until it is deleted, each receive gives of
// a group a run of its oldest messages up to the first hidden one, and no handle
// that has expired deletes.
func TestRandomFIFO(t *testing.T) {
	for seed := range uint64(12) {
		bubbletest.Run(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			s := New(BacklogLimit(1 << 20))
			do := func(op, body string, out any) int {
				w := &recorder{header: http.Header{}}
				s.ServeHTTP(w, newRequest(t, op, body))
				if err := json.Unmarshal([]byte(w.body.String()), out); err != nil {
					t.Fatal(err)
				}
				return w.status
			}
			var none struct{}
			do("CreateQueue", `{"QueueName":"q.fifo","Attributes":{"FifoQueue":"true"}}`, &none)
			type item struct {
				body   string
				hidden time.Time
				handle string
			}
			groups := map[string][]*item{}
			held := map[string][2]string{} // handle: group, body
			for step := range 400 {
				now := time.Now()
				switch r.IntN(5) {
				case 0, 1:
					g, b := fmt.Sprint("g", r.IntN(4)), fmt.Sprint(step)
					do("SendMessage", fmt.Sprintf(`{"QueueUrl":"q.fifo","MessageBody":%q,"MessageGroupId":%q,"MessageDeduplicationId":%q}`, b, g, b), &none)
					groups[g] = append(groups[g], &item{body: b})
				case 2:
					lease := r.IntN(4)
					n := 1 + r.IntN(10)
					var out struct {
						Messages []struct {
							Body, ReceiptHandle string
							Attributes          map[string]string
						}
					}
					do("ReceiveMessage", fmt.Sprintf(`{"QueueUrl":"q.fifo","MaxNumberOfMessages":%d,"VisibilityTimeout":%d,"AttributeNames":["All"]}`, n, lease), &out)
					due := 0
					for _, g := range groups {
						for _, m := range g {
							if m.hidden.After(now) {
								break
							}
							due++
						}
					}
					if len(out.Messages) != min(n, due) {
						t.Fatalf("seed %d step %d: %d messages of %d due, asked for %d", seed, step, len(out.Messages), due, n)
					}
					next := map[string]int{}
					for _, m := range out.Messages {
						g := m.Attributes["MessageGroupId"]
						i := next[g]
						next[g]++
						if want := groups[g][i]; want.body != m.Body || want.hidden.After(now) {
							t.Fatalf("seed %d step %d: group %s gave %s, want %s", seed, step, g, m.Body, want.body)
						}
						groups[g][i].hidden, groups[g][i].handle = now.Add(seconds(lease)), m.ReceiptHandle
						held[m.ReceiptHandle] = [2]string{g, m.Body}
					}
				case 3:
					for h, at := range held {
						delete(held, h)
						found := -1
						for i, m := range groups[at[0]] {
							if m.body == at[1] {
								found = i
							}
						}
						status := do("DeleteMessage", fmt.Sprintf(`{"QueueUrl":"q.fifo","ReceiptHandle":%q}`, h), &none)
						if found >= 0 {
							m := groups[at[0]][found]
							valid := m.handle == h && m.hidden.After(now)
							if (status == 200) != valid {
								t.Fatalf("seed %d step %d: delete answered %d, valid %v", seed, step, status, valid)
							}
							if valid {
								groups[at[0]] = append(groups[at[0]][:found:found], groups[at[0]][found+1:]...)
							}
						}
						break
					}
				case 4:
					time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
				}
			}
			left := 0
			for _, g := range groups {
				left += len(g)
			}
			if q := s.queues["q.fifo"]; q.total != left {
				t.Fatalf("seed %d: %d messages left, want %d", seed, q.total, left)
			}
		})
	}
}

// The heap gives its messages in order, whatever is removed or moved between.
func TestHeap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	h := messageHeap{before: byVisibleAt}
	in := map[*message]bool{}
	for i := range 5000 {
		switch r.IntN(4) {
		case 0, 1:
			m := &message{uid: uint64(i), visibleAt: r.Int64N(1000), heapIndex: -1}
			h.push(m)
			in[m] = true
		case 2:
			for m := range in {
				h.remove(m)
				delete(in, m)
				break
			}
		case 3:
			for m := range in {
				m.visibleAt = r.Int64N(1000)
				h.fix(m)
				break
			}
		}
		for m := range in {
			if m.visibleAt < h.top().visibleAt {
				t.Fatalf("step %d: top is %d, there is %d", i, h.top().visibleAt, m.visibleAt)
			}
			if h.items[m.heapIndex] != m {
				t.Fatalf("step %d: a message is not where it says", i)
			}
		}
	}
}

func TestHandles(t *testing.T) {
	want := handle{queue: 1, message: 1 << 60, receive: 7, ends: -1}
	s := string(want.append(nil))
	if got, ok := parseHandle(s); !ok || got != want {
		t.Errorf("%+v %v", got, ok)
	}
	for i := range s {
		b := []byte(s)
		b[i] ^= 1
		if h, ok := parseHandle(string(b)); ok && h != want {
			t.Errorf("byte %d changed: %+v", i, h)
		}
	}
}

// Many messages, for what only happens with many: the memories and lists shrink
// again, and the order holds over mass redelivery.
func TestThousands(t *testing.T) {
	for _, name := range []string{"q", "q.fifo"} {
		bubbletest.Run(t, func(t *testing.T) {
			s := New()
			do := func(op, body string) string {
				w := &recorder{header: http.Header{}}
				s.ServeHTTP(w, newRequest(t, op, body))
				if w.status != http.StatusOK || strings.Contains(w.body.String(), `"Failed"`) {
					t.Fatalf("%s: %d %s", op, w.status, w.body.String())
				}
				return w.body.String()
			}
			attributes, extra := "", ""
			if name != "q" {
				attributes, extra = `,"Attributes":{"FifoQueue":"true"}`, `,"MessageGroupId":"g%[1]d","MessageDeduplicationId":"%[1]d"`
			}
			do("CreateQueue", fmt.Sprintf(`{"QueueName":%q%s}`, name, attributes))
			const n = 3000
			for i := range n {
				do("SendMessage", fmt.Sprintf(`{"QueueUrl":%q,"MessageBody":"%d"`, name, i)+strings.Replace(extra, "%[1]d", fmt.Sprint(i), -1)+"}")
			}
			type got struct {
				Messages []struct{ Body, ReceiptHandle string }
			}
			receive := func(lease, attempt int) got {
				var out got
				if err := json.Unmarshal([]byte(do("ReceiveMessage", fmt.Sprintf(`{"QueueUrl":%q,"MaxNumberOfMessages":10,"VisibilityTimeout":%d,"ReceiveRequestAttemptId":"a%d"}`, name, lease, attempt))), &out); err != nil {
					t.Fatal(err)
				}
				return out
			}
			for i := range n / 10 {
				receive(60, i)
			}
			time.Sleep(time.Hour)
			at := 0
			for i := range n / 10 {
				out := receive(60, n+i)
				var entries []string
				for j, m := range out.Messages {
					if m.Body != fmt.Sprint(at) {
						t.Fatalf("message %s at place %d", m.Body, at)
					}
					at++
					entries = append(entries, fmt.Sprintf(`{"Id":"%d","ReceiptHandle":%q,"VisibilityTimeout":120}`, j, m.ReceiptHandle))
				}
				batch := fmt.Sprintf(`{"QueueUrl":%q,"Entries":[%s]}`, name, strings.Join(entries, ","))
				do("ChangeMessageVisibilityBatch", batch)
				do("DeleteMessageBatch", batch)
			}
			q := s.queues[name]
			time.Sleep(24 * time.Hour)
			do("SendMessage", fmt.Sprintf(`{"QueueUrl":%q,"MessageBody":"last"`, name)+strings.Replace(extra, "%[1]d", "last", -1)+"}")
			receive(60, 2*n)
			if at != n || q.total != 1 || len(q.received) != 1 || len(q.groups) > 1 || len(q.memory.known) > 1 || len(q.memory.order) > 1 || len(q.attempts.known) > n/5 || len(q.hidden.items) != 1 || len(q.fresh.items) != 0 {
				t.Errorf("%s: %d received; left: %d messages, %d received, %d groups, %d IDs (%d), %d attempts, %d hidden, %d fresh", name, at, q.total, len(q.received), len(q.groups), len(q.memory.known), len(q.memory.order), len(q.attempts.known), len(q.hidden.items), len(q.fresh.items))
			}
		})
	}
}
