package sqs

import (
	"encoding/base64"
	"slices"
	"strings"
)

// Bounds of what a request may hold, so that no input makes the emulator allocate
// far beyond its own size.
const (
	maxBatch     = 10   // SQS-F-14
	maxAttrs     = 10   // SQS-F-61
	maxListed    = 1000 // names, tags, actions in one request
	maxBodyBytes = 8 << 20
)

// pair is an entry of a map whose order we keep.
type pair struct{ key, value string }

// attribute is a message attribute or a message system attribute.
type attribute struct {
	name   string
	kind   string // DataType
	value  string // of a string or number, or the bytes of a binary
	binary bool   // the value came as BinaryValue
	set    bool   // there was a value
	list   bool   // there was a list value, which the service doesn't take
}

// entry is a message to send, or a handle to settle: what a request holds once, or
// a batch up to ten times.
type entry struct {
	id         text
	body       text
	delay      integer
	group      text
	dedup      text
	handle     text
	visibility integer
	attrs      []attribute // by name; at most maxAttrs, nattrs counts them all
	nattrs     int
	system     []attribute

	message *message // set by prepare
}

// request is what any of the operations may hold: their fields don't clash.
type request struct {
	op       string
	trace    string // of the HTTP header, for messages that bring none (SQS-F-61)
	queueURL string
	entry            // of the operations on a single message
	entries  []entry // at most maxBatch, nentries counts them all
	nentries int
	done     int // how many messages were taken, settled or handed out; 1 for the rest

	queueName, owner, prefix, label string
	nextToken                       text
	source, destination, task       text
	maxResults, rate, max, wait     integer
	attempt                         text

	attributes  []pair   // Attributes of CreateQueue and SetQueueAttributes
	tags        []pair   // tags, Tags
	tagKeys     []string // TagKeys
	names       []string // AttributeNames
	systemNames []string // MessageSystemAttributeNames
	attrNames   []string // MessageAttributeNames
	accounts    []string // AWSAccountIds
	actions     []string // Actions
}

// reset keeps the memory and forgets what is in it.
func (r *request) reset() {
	for i := range r.entries {
		e := &r.entries[i]
		clear(e.attrs)
		clear(e.system)
		*e = entry{attrs: e.attrs[:0], system: e.system[:0]}
	}
	clear(r.attrs)
	clear(r.system)
	entries, attrs, system := r.entries[:0], r.attrs[:0], r.system[:0]
	*r = request{entries: entries, entry: entry{attrs: attrs, system: system}}
}

// decode reads the request's fields. Unknown ones are passed over, as the service
// does.
func (r *request) decode(src string) *apiError {
	s := scanner{src: src}
	if s.peek() != '{' {
		s.bad("the request is no JSON object")
	}
	if s.enter('{') {
		for s.next() {
			r.field(&s)
		}
	}
	if s.fail == nil {
		if s.space(); s.pos < len(s.src) {
			s.bad("something follows the request")
		}
	}
	return s.fail
}

func (r *request) field(s *scanner) {
	switch s.key {
	case "QueueUrl":
		r.queueURL = s.text().s
	case "Entries":
		r.batch(s)
	case "QueueName":
		r.queueName = s.text().s
	case "QueueOwnerAWSAccountId":
		r.owner = s.text().s
	case "QueueNamePrefix":
		r.prefix = s.text().s
	case "NextToken":
		r.nextToken = s.text()
	case "MaxResults":
		r.maxResults = s.integer()
	case "MaxNumberOfMessages":
		r.max = s.integer()
	case "WaitTimeSeconds":
		r.wait = s.integer()
	case "ReceiveRequestAttemptId":
		r.attempt = s.text()
	case "AttributeNames":
		r.names = s.list(r.names)
	case "MessageSystemAttributeNames":
		r.systemNames = s.list(r.systemNames)
	case "MessageAttributeNames":
		r.attrNames = s.list(r.attrNames)
	case "Attributes":
		r.attributes = s.pairs(r.attributes)
	case "tags", "Tags":
		r.tags = s.pairs(r.tags)
	case "TagKeys":
		r.tagKeys = s.list(r.tagKeys)
	case "Label":
		r.label = s.text().s
	case "AWSAccountIds":
		r.accounts = s.list(r.accounts)
	case "Actions":
		r.actions = s.list(r.actions)
	case "SourceArn":
		r.source = s.text()
	case "DestinationArn":
		r.destination = s.text()
	case "TaskHandle":
		r.task = s.text()
	case "MaxNumberOfMessagesPerSecond":
		r.rate = s.integer()
	default:
		r.entry.field(s)
	}
}

// batch reads the entries. Those beyond what a batch may hold are only counted.
func (r *request) batch(s *scanner) {
	r.entries, r.nentries = r.entries[:0], 0
	if !s.enter('[') {
		return
	}
	for s.more(']') {
		if r.nentries++; r.nentries > maxBatch {
			s.skip()
			continue
		}
		if len(r.entries) < cap(r.entries) {
			r.entries = r.entries[:len(r.entries)+1]
		} else {
			r.entries = append(r.entries, entry{})
		}
		e := &r.entries[len(r.entries)-1]
		*e = entry{attrs: e.attrs[:0], system: e.system[:0]}
		if s.enter('{') {
			for s.next() {
				e.field(s)
			}
		}
	}
}

func (e *entry) field(s *scanner) {
	switch s.key {
	case "Id":
		e.id = s.text()
	case "MessageBody":
		e.body = s.text()
	case "DelaySeconds":
		e.delay = s.integer()
	case "MessageGroupId":
		e.group = s.text()
	case "MessageDeduplicationId":
		e.dedup = s.text()
	case "ReceiptHandle":
		e.handle = s.text()
	case "VisibilityTimeout":
		e.visibility = s.integer()
	case "MessageAttributes":
		e.attrs, e.nattrs = s.attributes(e.attrs)
	case "MessageSystemAttributes":
		e.system, _ = s.attributes(e.system)
	default:
		s.skip()
	}
}

// attributes reads a map of message attributes, sorted by name as the checksum
// wants them. A name that comes again replaces the one before.
func (s *scanner) attributes(into []attribute) ([]attribute, int) {
	into, n := into[:0], 0
	if !s.enter('{') {
		return into, 0
	}
	for s.next() {
		a := attribute{name: s.key}
		if s.enter('{') {
			for s.next() {
				a.field(s)
			}
		}
		at, again := slices.BinarySearchFunc(into, a.name, func(b attribute, name string) int { return strings.Compare(b.name, name) })
		switch {
		case again:
			into[at] = a
		case len(into) < maxAttrs:
			into = slices.Insert(into, at, a)
			n++
		default:
			n++
		}
	}
	return into, n
}

func (a *attribute) field(s *scanner) {
	switch s.key {
	case "DataType":
		a.kind = s.text().s
	case "StringValue":
		if v := s.text(); v.set {
			a.value, a.set, a.binary = v.s, true, false
		}
	case "BinaryValue":
		if v := s.text(); v.set {
			raw, err := base64.StdEncoding.DecodeString(v.s)
			if err != nil {
				s.bad("a BinaryValue is not base64")
			}
			a.value, a.set, a.binary = string(raw), true, true
		}
	case "StringListValues", "BinaryListValues":
		a.list = a.list || s.peek() == '[' // nulls are no lists
		s.skip()
	default:
		s.skip()
	}
}

// list reads an array of strings.
func (s *scanner) list(into []string) []string {
	into = into[:0]
	if !s.enter('[') {
		return into
	}
	for s.more(']') {
		if len(into) == maxListed {
			s.bad("a list is too long")
			return into
		}
		into = append(into, s.text().s)
	}
	return into
}

// pairs reads a map of strings.
func (s *scanner) pairs(into []pair) []pair {
	into = into[:0]
	if !s.enter('{') {
		return into
	}
	for s.next() {
		k := s.key
		v := s.text()
		i := slices.IndexFunc(into, func(p pair) bool { return p.key == k })
		switch {
		case i >= 0:
			into[i].value = v.s
		case len(into) == maxListed:
			s.bad("a map is too long")
			return into
		default:
			into = append(into, pair{k, v.s})
		}
	}
	return into
}
