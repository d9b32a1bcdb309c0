package sqs

import (
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/onceline/onceline/localstack/clock"
)

// moveTask moves the messages of a dead-letter queue back (SQS-F-37, SQS-F-62).
type moveTask struct {
	id          string
	source      *queue
	destination string // ARN; "" for the queue that each message came from
	rate        int    // messages in a second, 0 for as many as there are
	status      string
	failed      string
	started     int64
	moved       int
	toMove      int
	timer       *clock.Timer
	last        uint64 // uid of the last message that was there at the start
}

const (
	taskRunning    = "RUNNING"
	taskCompleted  = "COMPLETED"
	taskCancelled  = "CANCELLED"
	taskFailed     = "FAILED"
	maxTasksListed = 10
)

type taskHandle struct {
	Task   string `json:"taskId"`
	Source string `json:"sourceArn"`
}

func (t *moveTask) handle() string {
	b, _ := json.Marshal(taskHandle{t.id, t.source.arn}) // two strings: it can't fail
	return base64.StdEncoding.EncodeToString(b)
}

func (t *moveTask) stop() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

func (s *Server) startTask(r *request) (*moveTask, *apiError) {
	if !r.source.set {
		return nil, missing("SourceArn")
	}
	q := s.byARN(r.source.s)
	if q == nil {
		return nil, noResource("The resource that you specified for the SourceArn parameter doesn't exist.")
	}
	isDLQ := false
	for _, o := range s.queues {
		isDLQ = isDLQ || o.target == q.arn
	}
	switch {
	case !isDLQ:
		return nil, invalid("Source queue must be configured as a Dead Letter Queue.")
	case r.destination.set && s.byARN(r.destination.s) == nil:
		return nil, noResource("The resource that you specified for the DestinationArn parameter doesn't exist.")
	case r.destination.set && s.byARN(r.destination.s).fifo != q.fifo:
		return nil, invalid("Source and destination queues must be of the same type.")
	case r.rate.set && (r.rate.n < 1 || r.rate.n > 500):
		return nil, invalidValue(itoa(r.rate.n), "MaxNumberOfMessagesPerSecond", "Must be between 1 and 500, if provided.")
	case q.task != nil && q.task.status == taskRunning:
		return nil, invalid("There is already a task running. Only one active task is allowed for a source queue arn at a given time.")
	}
	now := s.now()
	q.tick(now)
	var id [36]byte
	uuid(&id)
	t := &moveTask{id: string(id[:]), source: q, destination: r.destination.s, rate: r.rate.n, status: taskRunning, started: now, toMove: q.visible(), last: q.uids}
	if q.task != nil {
		q.past = append(q.past, q.task)
		if len(q.past) >= maxTasksListed {
			q.past = q.past[1:]
		}
	}
	q.task = t
	s.step(t)
	return t, nil
}

// step moves what may be moved now, and comes again in a second if there is more.
func (s *Server) step(t *moveTask) {
	now := s.now()
	q := t.source
	q.tick(now)
	n := 0
	var next *message
	for m := q.first; m != nil && m.uid <= t.last; m = next {
		next = m.next
		if m.state != ready {
			continue
		}
		if t.rate > 0 && n == t.rate {
			t.timer = s.clock.AfterFunc(time.Second, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				if t.status == taskRunning && !q.deleted {
					s.step(t)
				}
			})
			q.after(now)
			return
		}
		if !s.redrive(t, m, now) {
			t.status = taskFailed
			q.after(now)
			return
		}
		n++
		t.moved++
	}
	t.status = taskCompleted
	q.after(now)
}

// redrive moves one message. It counts as new from then on (SQS-F-37).
func (s *Server) redrive(t *moveTask, m *message, now int64) bool {
	arn := t.destination
	if arn == "" {
		arn = m.source
	}
	to := s.byARN(arn)
	switch {
	case arn == "":
		t.failed = "CouldNotDetermineMessageSource"
		return false
	case to == nil:
		t.failed = noQueue().code
		return false
	}
	t.source.bury(m, now)
	moved := *m
	var id [36]byte
	uuid(&id)
	moved.id = string(id[:])
	moved.state, moved.heapIndex, moved.receives, moved.count, moved.leaseEnds = ready, -1, 0, 0, 0
	moved.inGroup, moved.gprev, moved.gnext = nil, nil, nil
	moved.source, moved.firstAt, moved.takenAt = "", 0, 0
	moved.sentAt, moved.enqueuedAt, moved.visibleAt = now, now, now
	to.tick(now)
	to.add(&moved, now)
	to.after(now)
	return true
}

func (s *Server) cancelTask(r *request) (*moveTask, *apiError) {
	if !r.task.set {
		return nil, missing("TaskHandle")
	}
	var h taskHandle
	raw, err := base64.StdEncoding.DecodeString(r.task.s)
	if err != nil || json.Unmarshal(raw, &h) != nil || h.Task == "" {
		return nil, invalid("Value for parameter TaskHandle is invalid.")
	}
	q := s.byARN(h.Source)
	if q == nil {
		return nil, noResource("The resource that you specified for the SourceArn parameter doesn't exist.")
	}
	if q.task == nil || q.task.id != h.Task {
		for _, t := range q.past {
			if t.id == h.Task {
				return nil, notRunning()
			}
		}
		return nil, noResource("Task does not exist.")
	}
	if q.task.status != taskRunning {
		return nil, notRunning()
	}
	q.task.stop()
	q.task.status = taskCancelled
	return q.task, nil
}

func notRunning() *apiError { return invalid("Only active tasks can be cancelled.") }

// listTasks returns the latest tasks of a queue, the newest first.
func (s *Server) listTasks(r *request) ([]*moveTask, *apiError) {
	if !r.source.set {
		return nil, missing("SourceArn")
	}
	q := s.byARN(r.source.s)
	if q == nil {
		return nil, noResource("The resource that you specified for the SourceArn parameter doesn't exist.")
	}
	limit := 1
	if r.maxResults.set {
		if limit = r.maxResults.n; limit < 1 || limit > maxTasksListed {
			return nil, invalidValue(itoa(limit), "MaxResults", "Must be between 1 and 10, if provided.")
		}
	}
	var out []*moveTask
	if q.task != nil {
		out = append(out, q.task)
	}
	for i := len(q.past) - 1; i >= 0; i-- {
		out = append(out, q.past[i])
	}
	return out[:min(limit, len(out))], nil
}
