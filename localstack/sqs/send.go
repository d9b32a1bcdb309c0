package sqs

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// sent is what the sender is told of a message.
type sent struct {
	id, md5, attrsMD5, systemMD5 string
	seq                          uint64 // 0 on a standard queue
}

// prepare makes the message of an entry. It needs no lock, and no queue: what
// depends on that is checked by send.
func (e *entry) prepare(trace string) {
	dedup := e.dedup.s
	if !e.dedup.set && e.group.set {
		// Over the body alone (SQS-F-08).
		sum := sha256.Sum256([]byte(e.body.s))
		dedup = hex.EncodeToString(sum[:])
	}
	e.message = newMessage(e, dedup)
	if e.message.trace == "" {
		e.message.trace = trace
	}
}

// send checks a message and stores it, unless it is a duplicate. batched says
// that it is an entry of a batch, whose errors have other words.
func (s *Server) send(q *queue, e *entry, batched bool, now int64) (sent, *apiError) {
	if err := q.check(e, batched); err != nil {
		return sent{}, err
	}
	m := e.message
	if !q.fifo {
		m.dedup = ""
	}
	out := sent{id: m.id, md5: m.md5, attrsMD5: m.attrsMD5}
	if len(e.system) > 0 {
		sum := sumAttributes(e.system)
		out.systemMD5 = hex.EncodeToString(sum[:])
	}
	if q.fifo {
		k := keyOf(m, q.inForce(now))
		if first, ok := q.memory.find(k, now); ok {
			// Accepted and not stored; the answer is that of the first (SQS-F-03).
			out.id, out.seq = string(first.id[:]), first.seq
			return out, nil
		}
		q.stamp(m, e, now)
		q.add(m, now)
		q.memory.remember(k, m, now)
		out.seq = m.uid
		return out, nil
	}
	q.stamp(m, e, now)
	q.add(m, now)
	return out, nil
}

func (q *queue) stamp(m *message, e *entry, now int64) {
	wait := q.delay
	if e.delay.set && !q.fifo {
		wait = seconds(e.delay.n) // SQS-F-16, SQS-F-68
	}
	m.sentAt, m.enqueuedAt, m.visibleAt = now, now, now+int64(wait)
}

// check says what is wrong with a message (SQS-F-01, -09, -15, -16, -38, -61, -69).
func (q *queue) check(e *entry, batched bool) *apiError {
	if e.body.s == "" {
		return missing("MessageBody")
	}
	if q.size(e) > q.maxSize {
		if batched {
			return invalid("One or more parameters cannot be validated. Reason: Message must be shorter than %d bytes.", q.maxSize) // SQS-F-53
		}
		return invalid("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", q.maxSize)
	}
	if !allowedText(e.body) {
		return badContents()
	}
	if d := e.delay; d.set {
		switch v := strconv.Itoa(d.n); {
		case d.n < 0 || d.n > 900:
			return invalidValue(v, "DelaySeconds", "DelaySeconds must be >= 0 and <= 900.")
		case q.fifo && d.n > 0:
			return invalidValue(v, "DelaySeconds", wrongFor)
		}
	}
	if e.group.set && !identifier(e.group.s) {
		return badIdentifier("MessageGroupId", e.group.s)
	}
	if e.dedup.set && !identifier(e.dedup.s) {
		return badIdentifier("MessageDeduplicationId", e.dedup.s)
	}
	switch {
	case q.fifo && !e.group.set:
		return missing("MessageGroupId")
	case q.fifo && !e.dedup.set && !q.contentDedup:
		return noDedup()
	case !q.fifo && e.dedup.set:
		return invalidValue(e.dedup.s, "MessageDeduplicationId", wrongFor)
	}
	return e.checkAttributes()
}

func noDedup() *apiError {
	return invalid("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
}

// size is what counts against the limits: the body, and the names, types and
// values of the attributes (SQS-F-15, SQS-F-61).
func (q *queue) size(e *entry) int {
	n := len(e.body.s)
	for i := range e.attrs {
		a := &e.attrs[i]
		n += len(a.name) + len(a.kind) + len(a.value)
	}
	return n
}

// identifier says whether s may be a group, a deduplication ID or an attempt ID:
// 1 to 128 letters, digits and ASCII punctuation (SQS-F-01).
func identifier(s string) bool {
	if len(s) < 1 || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func badIdentifier(parameter, v string) *apiError {
	return invalidValue(v, parameter, parameter+" can only include alphanumeric and punctuation characters. 1 to 128 in length.")
}

// allowedText says whether all characters of t may be in a message (SQS-F-69).
func allowedText(t text) bool {
	if t.ascii && !t.escaped {
		return true // the scanner took no control characters
	}
	for _, r := range t.s {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return false
		}
	}
	return true
}

// checkAttributes says what is wrong with the attributes (SQS-F-61).
func (e *entry) checkAttributes() *apiError {
	if e.nattrs > maxAttrs {
		return invalid("Number of message attributes [%d] exceeds the allowed maximum [%d].", e.nattrs, maxAttrs)
	}
	for i := range e.attrs {
		if err := e.attrs[i].check(); err != nil {
			return err
		}
	}
	for i := range e.system {
		a := &e.system[i]
		if a.name != "AWSTraceHeader" {
			return invalid("Message system attribute name '%s' is invalid.", a.name)
		}
		if a.kind != "String" || a.binary || !a.set {
			return invalid("The message system attribute '%s' must be of type 'String'.", a.name)
		}
	}
	return nil
}

func (a *attribute) check() *apiError {
	switch {
	case a.name == "" || len(a.name) > 256:
		return invalid("Message (user) attribute names must be shorter than 256 Bytes")
	case !attributeName(a.name):
		return invalid("Message (user) attributes name can only contain upper and lower score characters, digits, periods, hyphens and underscores. ")
	case reserved(a.name):
		return invalid("You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for internal use. Additionally, they cannot start or end with '.'.")
	case a.kind == "":
		return invalid("The message attribute '%s' must contain non-empty message attribute type.", a.name)
	case len(a.kind) > 256:
		return invalid("Message (user) attribute types must be shorter than 256 Bytes")
	}
	base, label, _ := strings.Cut(a.kind, ".")
	if base != "String" && base != "Number" && base != "Binary" || !attributeName(label) {
		return invalid("The message attribute '%s' has an invalid message attribute type, the set of supported type prefixes is Binary, Number, and String.", a.name)
	}
	switch {
	case a.list:
		return batchError("UnsupportedOperation", "The message attribute '%s' has list values, which are not implemented.", a.name)
	case a.value == "" || !a.set || a.binary != (base == "Binary"):
		return invalid("Message (user) attribute '%s' must contain a non-empty value of type '%s'.", a.name, base)
	case base == "Number" && !isNumber(a.value):
		return invalid("Can't cast the value of message (user) attribute '%s' to a number.", a.name)
	case base != "Binary" && !allowedText(text{s: a.value}):
		return invalid("Message (user) attribute '%s' holds invalid characters. %s", a.name, badContents().msg)
	}
	return nil
}

// attributeName allows what the documentation does, and Latin letters with
// diacritics, which the service takes too (SQS-F-61).
func attributeName(s string) bool {
	for _, r := range s {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-', r == '.':
		case 0xC0 <= r && r <= 0x17F:
		default:
			return false
		}
	}
	return true
}

func reserved(name string) bool {
	fold := strings.ToLower(name[:min(len(name), 7)])
	return name[0] == '.' || name[len(name)-1] == '.' ||
		strings.HasPrefix(fold, "aws.") || fold == "amazon."
}

// isNumber takes what a number can be written as in decimal.
func isNumber(s string) bool {
	if strings.ContainsAny(s, "xXpP_iInN") {
		return false
	}
	_, err := strconv.ParseFloat(s, 64)
	return err == nil || strings.Contains(err.Error(), "out of range")
}
