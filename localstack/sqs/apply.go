package sqs

import "strconv"

func itoa(n int) string { return strconv.Itoa(n) }

// apply carries a request out and appends its answer to b.
func (s *Server) apply(c *call, r *request, h host, b []byte) ([]byte, *apiError) {
	switch r.op {
	case "SendMessage", "SendMessageBatch":
		return s.applySend(c, r, b)
	case "ReceiveMessage":
		return s.applyReceive(c, r, b)
	case "DeleteMessage", "DeleteMessageBatch", "ChangeMessageVisibility", "ChangeMessageVisibilityBatch":
		return s.applySettle(c, r, b)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.alive() {
		return b, nil // Restart ended it before it was applied
	}
	r.done = 1
	switch r.op {
	case "CreateQueue":
		q, err := s.createQueue(r)
		if err != nil {
			return b, err
		}
		return object(b).str("QueueUrl", h.url(s, q.name)).end(), nil
	case "GetQueueUrl":
		q := s.queues[r.queueName]
		if q == nil || r.owner != "" && r.owner != s.account {
			return b, noQueue()
		}
		return object(b).str("QueueUrl", h.url(s, q.name)).end(), nil
	case "ListQueues":
		names, next, err := s.listQueues(r)
		if err != nil {
			return b, err
		}
		o := object(b)
		if len(names) > 0 {
			o = o.urls("QueueUrls", names, s, h)
		}
		return o.opt("NextToken", next).end(), nil
	case "StartMessageMoveTask":
		t, err := s.startTask(r)
		if err != nil {
			return b, err
		}
		return object(b).str("TaskHandle", t.handle()).end(), nil
	case "CancelMessageMoveTask":
		t, err := s.cancelTask(r)
		if err != nil {
			return b, err
		}
		return object(b).num("ApproximateNumberOfMessagesMoved", t.moved).end(), nil
	case "ListMessageMoveTasks":
		return s.applyListTasks(r, b)
	}
	q, err := s.byURL(r.queueURL)
	if err != nil {
		return b, err
	}
	return s.applyQueue(q, r, h, b)
}

// applyQueue is the operations on a queue that need no message.
func (s *Server) applyQueue(q *queue, r *request, h host, b []byte) ([]byte, *apiError) {
	var err *apiError
	switch r.op {
	case "DeleteQueue":
		s.deleteQueue(q)
	case "PurgeQueue":
		err = s.purge(q)
	case "SetQueueAttributes":
		err = s.setAttributes(q, r.attributes)
	case "GetQueueAttributes":
		var attrs []pair
		if attrs, err = s.getAttributes(q, r.names); err == nil {
			return object(b).pairs("Attributes", attrs).end(), nil
		}
	case "ListDeadLetterSourceQueues":
		names, next, err := s.listSources(q, r)
		if err != nil {
			return b, err
		}
		return object(b).urls("queueUrls", names, s, h).opt("NextToken", next).end(), nil
	case "TagQueue":
		err = q.tag(r.tags)
	case "UntagQueue":
		for _, k := range r.tagKeys {
			delete(q.tags, k)
		}
	case "ListQueueTags":
		return object(b).pairs("Tags", sortedPairs(q.tags)).end(), nil
	case "AddPermission":
		err = q.addPermission(r)
	case "RemovePermission":
		err = q.removePermission(r.label)
	default:
		err = unknownOperation()
	}
	return object(b).end(), err
}

func (s *Server) applyListTasks(r *request, b []byte) ([]byte, *apiError) {
	tasks, err := s.listTasks(r)
	if err != nil {
		return b, err
	}
	b = append(b, `{"Results":[`...)
	for i, t := range tasks {
		if i > 0 {
			b = append(b, ',')
		}
		o := object(b).num("ApproximateNumberOfMessagesMoved", t.moved).num("ApproximateNumberOfMessagesToMove", t.toMove)
		o = o.opt("DestinationArn", t.destination).opt("FailureReason", t.failed)
		if t.rate > 0 {
			o = o.num("MaxNumberOfMessagesPerSecond", t.rate)
		}
		o = o.str("SourceArn", t.source.arn).num("StartedTimestamp", int(t.started/1e6)).str("Status", t.status)
		if t.status == taskRunning {
			o = o.str("TaskHandle", t.handle())
		}
		b = o.end()
	}
	return append(b, "]}"...), nil
}

// applySend stores one message or a batch of them.
func (s *Server) applySend(c *call, r *request, b []byte) ([]byte, *apiError) {
	batched := r.op == "SendMessageBatch"
	if batched {
		if err := r.checkBatch(); err != nil {
			return b, err
		}
		for i := range r.entries {
			r.entries[i].prepare(r.trace)
		}
	} else {
		r.prepare(r.trace)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.alive() {
		return b, nil
	}
	q, err := s.byURL(r.queueURL)
	if err != nil {
		return b, err
	}
	now := s.now()
	q.tick(now)
	if !batched {
		out, err := s.send(q, &r.entry, false, now)
		if err != nil {
			return b, err
		}
		r.done = 1
		q.after(now)
		return object(b).sent(q, out).end(), nil
	}
	if err := q.checkSendBatch(r); err != nil {
		return b, err
	}
	res := results{b: b}
	for i := range r.entries {
		e := &r.entries[i]
		out, err := s.send(q, e, true, now)
		if err != nil {
			res.fail(e, err)
			continue
		}
		res.ok(e)
		res.object = res.object.sent(q, out)
		res.close()
	}
	r.done = res.succeeded
	q.after(now)
	return res.end(), nil
}

// checkBatch refuses a batch as a whole (SQS-F-67).
func (r *request) checkBatch() *apiError {
	switch {
	case r.nentries == 0:
		return batchError("EmptyBatchRequest", "There should be at least one %sRequestEntry in the request.", r.op)
	case r.nentries > maxBatch:
		return batchError("TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10. You have sent %d.", r.nentries)
	}
	for i := range r.entries {
		id := r.entries[i].id.s
		if !queueName(id) || len(id) > 80 {
			return batchError("InvalidBatchEntryId", "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.")
		}
		for j := range i {
			if r.entries[j].id.s == id {
				return batchError("BatchEntryIdsNotDistinct", "Id %s repeated.", id)
			}
		}
	}
	return nil
}

// checkSendBatch refuses a batch as a whole for what its entries lack (SQS-F-52)
// or for its size, which counts against the service's limit, not the queue's
// (SQS-F-15).
func (q *queue) checkSendBatch(r *request) *apiError {
	total := 0
	for i := range r.entries {
		e := &r.entries[i]
		switch {
		case !q.fifo:
		case !e.dedup.set && !q.contentDedup:
			return noDedup()
		case !e.group.set:
			return invalid("The request must contain the parameter MessageGroupId.")
		}
		total += q.size(e)
	}
	if total > 1<<20 {
		return batchError("BatchRequestTooLong", "Batch requests cannot be longer than 1048576 bytes. You have sent %d bytes.", total)
	}
	return nil
}

// applySettle deletes messages or changes when they show, one or a batch.
func (s *Server) applySettle(c *call, r *request, b []byte) ([]byte, *apiError) {
	deletes := r.op == "DeleteMessage" || r.op == "DeleteMessageBatch"
	batched := r.op == "DeleteMessageBatch" || r.op == "ChangeMessageVisibilityBatch"
	if batched {
		if err := r.checkBatch(); err != nil {
			return b, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.alive() {
		return b, nil
	}
	q, err := s.byURL(r.queueURL)
	if err != nil {
		return b, err
	}
	now := s.now()
	q.tick(now)
	settle := q.changeVisibility
	if deletes {
		settle = q.delete
	}
	if !batched {
		if err := settle(&r.entry, now); err != nil {
			return b, err
		}
		r.done = 1
		q.after(now)
		return object(b).end(), nil
	}
	res := results{b: b}
	for i := range r.entries {
		e := &r.entries[i]
		if err := settle(e, now); err != nil {
			res.fail(e, err)
			continue
		}
		res.ok(e)
		res.close()
	}
	r.done = res.succeeded
	q.after(now)
	return res.end(), nil
}

// applyReceive hands messages out. They are printed without the lock.
func (s *Server) applyReceive(c *call, r *request, b []byte) ([]byte, *apiError) {
	got, q, err := s.lockedReceive(c, r)
	if err != nil {
		return b, err
	}
	r.done = len(got)
	if len(got) == 0 {
		return object(b).end(), nil // no key for no messages (SQS-F-63)
	}
	system := wants(r.systemNames, "All")
	if more := wants(r.names, "All"); more.all || len(more.names) > 0 {
		system.all = system.all || more.all
		system.names = append(system.names, more.names...)
	}
	attrs := wants(r.attrNames, "All", ".*", "*")
	b = append(b, `{"Messages":[`...)
	for i := range got {
		if i > 0 {
			b = append(b, ',')
		}
		b = got[i].append(b, q, system, attrs)
	}
	return append(b, "]}"...), nil
}

func (s *Server) lockedReceive(c *call, r *request) ([]handed, *queue, *apiError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.alive() {
		return nil, nil, nil
	}
	q, err := s.byURL(r.queueURL)
	if err != nil {
		return nil, nil, err
	}
	a, err := q.ask(r)
	if err != nil {
		return nil, nil, err
	}
	got, err := s.receive(c, q, a)
	return got, q, err
}
