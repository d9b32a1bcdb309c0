package sqs

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// settings are the attributes of a queue that can be set (SQS-F-66).
type settings struct {
	visibility time.Duration
	delay      time.Duration
	retention  time.Duration
	wait       time.Duration
	maxSize    int

	contentDedup bool
	// scoped is the deduplication scope in force; a change of it takes a while
	// (SQS-F-07), which wanted and wantedAt hold.
	scoped   bool
	wanted   bool
	wantedAt int64
	perGroup bool // FifoThroughputLimit

	policy      string
	statements  []statement // of AddPermission
	redrive     string      // as it was given
	target      string      // ARN, of redrive
	maxReceives int
	allow       string // RedriveAllowPolicy as it was given
	allowed     allowPolicy
	kmsKey      string
	kmsReuse    int
	managedSSE  bool
}

// scopeLag is how long a queue goes on with its old deduplication scope. The
// vendor says that changes take up to 60 seconds, and sends right after one were
// seen to follow the old scope (SQS-F-07).
const scopeLag = time.Minute

func defaults() settings {
	return settings{
		visibility: 30 * time.Second,
		retention:  4 * 24 * time.Hour,
		maxSize:    1 << 20,
		kmsReuse:   300,
		managedSSE: true,
	}
}

// number is an attribute with a range.
type number struct {
	name     string
	min, max int
}

var numbers = []number{
	{"VisibilityTimeout", 0, 43200},             // SQS-F-18
	{"DelaySeconds", 0, 900},                    // SQS-F-16
	{"MessageRetentionPeriod", 60, 1209600},     // SQS-F-17
	{"ReceiveMessageWaitTimeSeconds", 0, 20},    // SQS-F-42
	{"MaximumMessageSize", 1024, 1 << 20},       // SQS-F-15
	{"KmsDataKeyReusePeriodSeconds", 60, 86400}, // SQS-F-66
}

// set takes the attributes over into a copy of the settings of q, or says why
// not. creating tells a new queue from one that is changed.
func (s *Server) set(q *queue, attrs []pair, creating bool) (settings, *apiError) {
	set := q.settings
	now := s.now()
	for _, a := range attrs {
		if err := s.setOne(q, &set, a, creating, now); err != nil {
			return set, err
		}
	}
	if set.perGroup && !set.wanted {
		// SQS-F-06
		return set, invalidValue("perMessageGroupId", "FifoThroughputLimit", "The perMessageGroupId value is allowed only when the value for DeduplicationScope is messageGroup.")
	}
	return set, set.encryption(attrs)
}

func (s *Server) setOne(q *queue, set *settings, a pair, creating bool, now int64) *apiError {
	for _, n := range numbers {
		if n.name == a.key {
			v, err := strconv.Atoi(a.value)
			if err != nil || v < n.min || v > n.max {
				return badAttribute(a.key, "")
			}
			set.number(a.key, v)
			return nil
		}
	}
	truth, isBool := parseBool(a.value)
	switch a.key {
	case "FifoQueue":
		switch {
		case !q.fifo:
			return unknownAttribute(a.key)
		case !isBool:
			return badAttribute(a.key, "")
		case !truth:
			return badAttribute(a.key, "Modifying queue type is not supported.")
		}
	case "ContentBasedDeduplication":
		if !q.fifo {
			return unknownAttribute(a.key)
		}
		if !isBool {
			return badAttribute(a.key, "")
		}
		set.contentDedup = truth
	case "DeduplicationScope":
		return set.scope(q, a.value, creating, now)
	case "FifoThroughputLimit":
		if !q.fifo {
			return onlyFIFO(a.key)
		}
		if a.value != "perQueue" && a.value != "perMessageGroupId" {
			return badAttribute(a.key, "")
		}
		set.perGroup = a.value == "perMessageGroupId"
	case "Policy":
		if a.value != "" && !json.Valid([]byte(a.value)) {
			return badAttribute(a.key, "")
		}
		set.policy, set.statements = a.value, parseStatements(a.value)
	case "RedrivePolicy":
		return s.setRedrive(q, set, a.value)
	case "RedriveAllowPolicy":
		return set.setAllow(a.value)
	case "KmsMasterKeyId":
		set.kmsKey = a.value
	case "SqsManagedSseEnabled":
		if !isBool {
			return badAttribute(a.key, "")
		}
		set.managedSSE = truth
	default:
		return unknownAttribute(a.key) // also those that can only be read
	}
	return nil
}

func (set *settings) number(name string, v int) {
	switch name {
	case "VisibilityTimeout":
		set.visibility = seconds(v)
	case "DelaySeconds":
		set.delay = seconds(v)
	case "MessageRetentionPeriod":
		set.retention = seconds(v)
	case "ReceiveMessageWaitTimeSeconds":
		set.wait = seconds(v)
	case "MaximumMessageSize":
		set.maxSize = v
	case "KmsDataKeyReusePeriodSeconds":
		set.kmsReuse = v
	}
}

// encryption keeps to one kind: what the request names ends the other, and it may
// not name both.
func (set *settings) encryption(attrs []pair) *apiError {
	var kms, managed bool
	for _, a := range attrs {
		kms = kms || a.key == "KmsMasterKeyId" && a.value != ""
		managed = managed || a.key == "SqsManagedSseEnabled" && set.managedSSE
	}
	switch {
	case kms && managed:
		e := unknownAttribute("SqsManagedSseEnabled")
		e.msg = "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE."
		return e
	case kms:
		set.managedSSE = false
	case managed:
		set.kmsKey = ""
	}
	return nil
}

func parseBool(v string) (truth, ok bool) {
	switch strings.ToLower(v) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

func onlyFIFO(name string) *apiError {
	e := unknownAttribute(name)
	e.msg = "You can specify the " + name + " only when FifoQueue is set to true."
	return e
}

func (set *settings) scope(q *queue, v string, creating bool, now int64) *apiError {
	if !q.fifo {
		return onlyFIFO("DeduplicationScope")
	}
	if v != "queue" && v != "messageGroup" {
		return badAttribute("DeduplicationScope", "")
	}
	set.scoped = set.inForce(now)
	set.wanted, set.wantedAt = v == "messageGroup", now+int64(scopeLag)
	if creating {
		set.scoped = set.wanted
	}
	return nil
}

// inForce says whether IDs are unique per group now.
func (set *settings) inForce(now int64) bool {
	if now >= set.wantedAt {
		return set.wanted
	}
	return set.scoped
}

// setRedrive takes a redrive policy (SQS-F-34). The target is given by its ARN
// and must be there, of the same type, and must allow the source.
func (s *Server) setRedrive(q *queue, set *settings, v string) *apiError {
	if v == "" {
		set.redrive, set.target, set.maxReceives = "", "", 0
		return nil
	}
	bad := func(reason string) *apiError { return invalidValue(v, "RedrivePolicy", reason) }
	var p struct {
		Target *string         `json:"deadLetterTargetArn"`
		Max    json.RawMessage `json:"maxReceiveCount"`
	}
	switch {
	case json.Unmarshal([]byte(v), &p) != nil:
		return bad("Redrive policy is not a valid JSON map.")
	case p.Target == nil:
		return bad("Redrive policy does not contain mandatory attribute: deadLetterTargetArn.")
	case p.Max == nil:
		return bad("Redrive policy does not contain mandatory attribute: maxReceiveCount.")
	}
	n, err := strconv.Atoi(strings.Trim(string(p.Max), `"`)) // both 3 and "3" are taken
	if err != nil || n < 1 || n > 1000 {
		return bad("Invalid value for maxReceiveCount: " + strings.Trim(string(p.Max), `"`) + ", valid values are from 1 to 1000 both inclusive.")
	}
	if !strings.HasPrefix(*p.Target, "arn:") || strings.Count(*p.Target, ":") != 5 {
		return bad("Dead letter target ARN is not valid.")
	}
	dlq := s.byARN(*p.Target)
	switch {
	case dlq == nil && *p.Target != q.arn:
		e := bad("Dead letter target does not exist.")
		missing := noQueue()
		e.shape, e.code = missing.shape, missing.code
		return e
	case dlq != nil && dlq.fifo != q.fifo:
		return bad("Dead-letter queue must be same type of queue as the source.")
	case dlq != nil && !dlq.allowed.permits(q.arn):
		return bad("Queue does not have permission to use this dead letter queue.")
	}
	set.redrive, set.target, set.maxReceives = v, *p.Target, n
	return nil
}

// allowPolicy says which queues may name this one as their dead-letter queue.
type allowPolicy struct {
	denyAll bool
	only    []string // ARNs; nil for all
}

func (a *allowPolicy) permits(arn string) bool {
	if a.denyAll {
		return false
	}
	if a.only == nil {
		return true
	}
	for _, o := range a.only {
		if o == arn {
			return true
		}
	}
	return false
}

func (set *settings) setAllow(v string) *apiError {
	if v == "" {
		set.allow, set.allowed = "", allowPolicy{}
		return nil
	}
	bad := func(reason string) *apiError { return invalidValue(v, "RedriveAllowPolicy", reason) }
	var p struct {
		Permission string   `json:"redrivePermission"`
		Sources    []string `json:"sourceQueueArns"`
	}
	if json.Unmarshal([]byte(v), &p) != nil {
		return bad("Amazon SQS can't create the redrive allow policy, as it’s in an unsupported format.")
	}
	switch {
	case p.Permission == "byQueue" && (len(p.Sources) == 0 || len(p.Sources) > 10):
		return bad("Amazon SQS can't create the redrive allow policy. When you specify the byQueue permission type, you must specify one to 10 sourceQueueArns.")
	case p.Permission != "byQueue" && len(p.Sources) > 0:
		return bad("Amazon SQS can't create the redrive allow policy. You can specify sourceQueueArns only with the byQueue permission type.")
	case p.Permission != "byQueue" && p.Permission != "allowAll" && p.Permission != "denyAll":
		return bad("Amazon SQS can't create the redrive allow policy, as the redrivePermission is unknown.")
	}
	set.allow = v
	set.allowed = allowPolicy{denyAll: p.Permission == "denyAll", only: p.Sources}
	return nil
}

// readable lists the attributes of a queue in the order in which they are
// answered. Those that have no value aren't answered (SQS-F-66).
func (q *queue) readable(yield func(name, value string)) {
	n := func(name string, v int) { yield(name, strconv.Itoa(v)) }
	sec := func(name string, d time.Duration) { n(name, int(d/time.Second)) }
	opt := func(name, v string) {
		if v != "" {
			yield(name, v)
		}
	}
	yield("QueueArn", q.arn)
	n("ApproximateNumberOfMessages", q.visible())
	n("ApproximateNumberOfMessagesNotVisible", q.nInFlight)
	n("ApproximateNumberOfMessagesDelayed", q.nDelayed)
	n("CreatedTimestamp", int(q.created/int64(time.Second)))
	n("LastModifiedTimestamp", int(q.changed/int64(time.Second)))
	sec("VisibilityTimeout", q.visibility)
	n("MaximumMessageSize", q.maxSize)
	sec("MessageRetentionPeriod", q.retention)
	sec("DelaySeconds", q.delay)
	sec("ReceiveMessageWaitTimeSeconds", q.wait)
	opt("Policy", q.policy)
	opt("RedrivePolicy", q.redrive)
	opt("RedriveAllowPolicy", q.allow)
	opt("KmsMasterKeyId", q.kmsKey)
	if q.kmsReuse != 300 {
		n("KmsDataKeyReusePeriodSeconds", q.kmsReuse)
	}
	yield("SqsManagedSseEnabled", strconv.FormatBool(q.managedSSE))
	if !q.fifo {
		return
	}
	yield("FifoQueue", "true")
	yield("ContentBasedDeduplication", strconv.FormatBool(q.contentDedup))
	yield("DeduplicationScope", choose(q.wanted, "messageGroup", "queue"))
	yield("FifoThroughputLimit", choose(q.perGroup, "perMessageGroupId", "perQueue"))
}

func choose(cond bool, yes, no string) string {
	if cond {
		return yes
	}
	return no
}
