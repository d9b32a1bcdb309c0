package sqs

import (
	"encoding/base64"
	"slices"
	"strings"
	"time"
)

// deletedFor is how long the name of a deleted queue can't be used (SQS-F-56).
const deletedFor = time.Minute

func (s *Server) byARN(arn string) *queue {
	q := s.queues[arn[strings.LastIndexByte(arn, ':')+1:]]
	if q == nil || q.arn != arn {
		return nil
	}
	return q
}

// byURL takes the name from the last part of the URL, as clients may reach the
// emulator by another host than the one that made the URL.
func (s *Server) byURL(url string) (*queue, *apiError) {
	if url == "" {
		return nil, missing("QueueUrl")
	}
	if q := s.queues[nameOf(url)]; q != nil {
		return q, nil
	}
	return nil, noQueue()
}

func nameOf(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }

// createQueue makes a queue, or finds the one that has the same attributes
// (SQS-F-58).
func (s *Server) createQueue(r *request) (*queue, *apiError) {
	name := r.queueName
	if name == "" {
		return nil, missing("QueueName")
	}
	fifo := false
	for _, a := range r.attributes {
		if a.key == "FifoQueue" {
			truth, ok := parseBool(a.value)
			if !ok {
				return nil, badAttribute(a.key, "")
			}
			if !truth {
				return nil, unknownAttribute(a.key)
			}
			fifo = true
		}
	}
	base, suffix := strings.CutSuffix(name, ".fifo")
	switch {
	case fifo && (!suffix || !queueName(base) || len(name) > 80):
		return nil, invalid("The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo suffix and be 1 to 80 in length.")
	case !fifo && (!queueName(name) || len(name) > 80):
		return nil, invalid("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	now := s.now()
	if q := s.queues[name]; q != nil {
		if clash := s.differs(q, r.attributes); clash != "" {
			return nil, failure(400, modelled+"QueueNameExists", "QueueAlreadyExists", "A queue already exists with the same name and a different value for attribute %s", clash)
		}
		return q, nil
	}
	if until, ok := s.deleted[name]; ok && now < until {
		return nil, failure(400, modelled+"QueueDeletedRecently", legacy+"QueueDeletedRecently", "You must wait 60 seconds after deleting a queue before you can create another with the same name.")
	}
	q := &queue{server: s, name: name, arn: s.arn(name), fifo: fifo, settings: defaults(), tags: map[string]string{}, created: now, changed: now}
	q.clear()
	set, err := s.set(q, r.attributes, true)
	if err != nil {
		return nil, err
	}
	if err := q.tag(r.tags); err != nil {
		return nil, err
	}
	q.settings = set
	s.uids++
	q.uid = s.uids
	s.queues[name] = q
	delete(s.deleted, name)
	return q, nil
}

func queueName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return s != ""
}

// differs names the attribute by which a request to create q asks for another
// queue than there is.
func (s *Server) differs(q *queue, attrs []pair) string {
	have := map[string]string{}
	q.readable(func(name, value string) { have[name] = value })
	for _, a := range attrs {
		v, ok := have[a.key]
		if !ok && a.key == "KmsDataKeyReusePeriodSeconds" {
			v = "300"
		}
		if truth, isBool := parseBool(a.value); isBool {
			if was, _ := parseBool(v); was == truth {
				continue
			}
		}
		if v != a.value {
			return a.key
		}
	}
	return ""
}

func (s *Server) deleteQueue(q *queue) {
	now := s.now()
	q.clear()
	q.deleted = true
	if q.alarm != nil {
		q.alarm.Stop()
		q.alarm = nil
	}
	for _, w := range q.waiters {
		w.rouse()
	}
	if q.task != nil {
		q.task.stop()
	}
	delete(s.queues, q.name)
	for name, until := range s.deleted {
		if until <= now {
			delete(s.deleted, name)
		}
	}
	s.deleted[q.name] = now + int64(deletedFor)
}

// purge empties the queue, once in a minute (SQS-F-10).
func (s *Server) purge(q *queue) *apiError {
	now := s.now()
	if q.purged != 0 && now < q.purged+int64(time.Minute) {
		return failure(403, modelled+"PurgeQueueInProgress", legacy+"PurgeQueueInProgress", "Only one PurgeQueue operation on %s is allowed every 60 seconds.", q.name)
	}
	q.purged = now
	q.clear()
	q.after(now)
	return nil
}

func (s *Server) setAttributes(q *queue, attrs []pair) *apiError {
	if len(attrs) == 0 {
		return missing("Attribute.Name")
	}
	set, err := s.set(q, attrs, false)
	if err != nil {
		return err
	}
	now := s.now()
	q.settings, q.changed = set, now
	q.tick(now)
	q.after(now)
	return nil
}

// attributeNames are those that may be asked for.
var attributeNames = []string{
	"All", "Policy", "VisibilityTimeout", "MaximumMessageSize", "MessageRetentionPeriod", "ApproximateNumberOfMessages",
	"ApproximateNumberOfMessagesNotVisible", "CreatedTimestamp", "LastModifiedTimestamp", "QueueArn",
	"ApproximateNumberOfMessagesDelayed", "DelaySeconds", "ReceiveMessageWaitTimeSeconds", "RedrivePolicy", "FifoQueue",
	"ContentBasedDeduplication", "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "DeduplicationScope", "FifoThroughputLimit",
	"RedriveAllowPolicy", "SqsManagedSseEnabled",
}

func (s *Server) getAttributes(q *queue, names []string) ([]pair, *apiError) {
	for _, n := range names {
		if !slices.Contains(attributeNames, n) {
			return nil, unknownAttribute(n)
		}
	}
	q.tick(s.now())
	w := wants(names, "All")
	var out []pair
	q.readable(func(name, value string) {
		if w.has(name) {
			out = append(out, pair{name, value})
		}
	})
	return out, nil
}

// page cuts a list of names into pages (SQS-F-71). A token names the last one of
// the page before.
func page(names []string, r *request) (cut []string, next string, err *apiError) {
	slices.Sort(names)
	limit := maxListed
	if r.maxResults.set {
		if limit = r.maxResults.n; limit < 1 || limit > maxListed {
			return nil, "", invalid("MaxResults must be an integer between 1 and 1000.")
		}
	}
	if r.nextToken.set && r.nextToken.s != "" {
		after, bad := base64.StdEncoding.DecodeString(r.nextToken.s)
		if bad != nil || !r.maxResults.set {
			return nil, "", invalid("Invalid or expired next token.")
		}
		i, found := slices.BinarySearch(names, string(after))
		if found {
			i++
		}
		names = names[i:]
	}
	if len(names) > limit {
		names = names[:limit]
		if r.maxResults.set {
			next = base64.StdEncoding.EncodeToString([]byte(names[limit-1]))
		}
	}
	return names, next, nil
}

func (s *Server) listQueues(r *request) ([]string, string, *apiError) {
	var names []string
	for n := range s.queues {
		if strings.HasPrefix(n, r.prefix) {
			names = append(names, n)
		}
	}
	return page(names, r)
}

func (s *Server) listSources(q *queue, r *request) ([]string, string, *apiError) {
	var names []string
	for n, o := range s.queues {
		if o.target == q.arn {
			names = append(names, n)
		}
	}
	return page(names, r)
}

// tag adds tags (SQS-F-72).
func (q *queue) tag(tags []pair) *apiError {
	fresh := 0
	for _, t := range tags {
		if t.key == "" || len(t.key) > 128 || len(t.value) > 256 {
			return invalid("Tag keys must be between 1 and 128 characters in length, and values at most 256.")
		}
		if _, ok := q.tags[t.key]; !ok {
			fresh++
		}
	}
	if len(q.tags)+fresh > 50 {
		return invalid("Too many tags added for queue %s.", q.name)
	}
	for _, t := range tags {
		q.tags[t.key] = t.value
	}
	return nil
}
