package servicebus

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// manage answers a request to an entity's $management node.
func (s *Server) manage(r *request, now time.Time) answer {
	if r.operation == "com.microsoft:schedule-message" || r.operation == "com.microsoft:cancel-scheduled-message" {
		t := s.target(r.entity)
		if t == nil {
			return failed(404, "amqp:not-found", "The messaging entity '"+r.entity+"' could not be found.")
		}
		if r.operation == "com.microsoft:schedule-message" {
			return s.schedule(r, t, now)
		}
		return cancelScheduled(r, t)
	}
	q := s.queues[key(r.entity)]
	if q == nil {
		return failed(404, "amqp:not-found", "The messaging entity '"+r.entity+"' could not be found.")
	}
	q.accessed = now
	switch r.operation {
	case "com.microsoft:peek-message":
		return q.peek(r)
	case "com.microsoft:renew-lock":
		return q.renewLocks(r, now)
	case "com.microsoft:update-disposition":
		return q.updateDisposition(r, now)
	case "com.microsoft:receive-by-sequence-number":
		return q.receiveByNumber(r, now)
	case "com.microsoft:renew-session-lock", "com.microsoft:get-session-state", "com.microsoft:set-session-state":
		return q.sessionRequest(r, now)
	case "com.microsoft:get-message-sessions":
		return q.listSessions(r)
	case "com.microsoft:add-rule", "com.microsoft:remove-rule", "com.microsoft:enumerate-rules":
		return q.ruleRequest(r, now)
	}
	return failed(501, "amqp:not-implemented", "The operation '"+r.operation+"' is not supported.")
}

var gone410 = failed(410, condLockLost, lockLostText)

func notThere(format string, args ...any) answer {
	return failed(404, "com.microsoft:message-not-found", fmt.Sprintf(format, args...))
}

// messages is the answer with the given messages, 204 without any. Locked ones
// carry their token beside and inside.
func messages(ms []*message) answer {
	if len(ms) == 0 {
		return answer{code: 204, text: "No content"}
	}
	var l amqp.List
	for _, m := range ms {
		e := amqp.Map{{Key: "message", Value: m.append(nil)}}
		if m.state == locked {
			e = append(e, amqp.Entry{Key: "lock-token", Value: m.token})
		}
		l = append(l, e)
	}
	return answer{code: 200, text: "OK", body: amqp.Map{{Key: "messages", Value: l}}}
}

// maxPeek bounds a peek, whose answer is one message.
const maxPeek = 250

// peek shows messages from a number on, in whatever state, and locks none.
func (q *queue) peek(r *request) answer {
	from, _ := integer(r.get("from-sequence-number"))
	n, _ := integer(r.get("message-count"))
	sid, bySession := r.get("session-id").(string)
	n = min(n, maxPeek)
	var ms []*message
	size := 0
	for m := q.all.head; m != nil && int64(len(ms)) < n; m = m.nodes[inAll].next {
		if m.seq < from || bySession && m.sid != sid {
			continue
		}
		if size += m.size(); size > q.s.maxSize && len(ms) > 0 {
			break
		}
		ms = append(ms, m)
	}
	return messages(ms)
}

func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int32:
		return int64(v), true
	case int64:
		return v, true
	case uint32:
		return int64(v), true
	case uint64:
		return int64(min(v, 1<<62)), true
	}
	return 0, false
}

// items returns the items of an array or a list, which clients use alike.
func items(v any) []any {
	switch v := v.(type) {
	case amqp.Array:
		return v.Items
	case amqp.List:
		return v
	}
	return nil
}

// held by token: every one must be, or nothing is done (SB-F-14).
func (q *queue) byTokens(v any, now time.Time) ([]*message, bool) {
	var ms []*message
	for _, t := range items(v) {
		token, ok := t.(amqp.UUID)
		m := q.tokens[token]
		if !ok || m == nil || !m.lockedUntil.After(now) || slices.Contains(ms, m) {
			return nil, false
		}
		ms = append(ms, m)
	}
	return ms, len(ms) > 0
}

func (q *queue) renewLocks(r *request, now time.Time) answer {
	ms, ok := q.byTokens(r.get("lock-tokens"), now)
	if !ok {
		return gone410
	}
	if q.sessionful() {
		return failed(400, "amqp:not-allowed", "Lock renewal of messages is not possible in a session. Renew the session's lock.")
	}
	var until []time.Time
	for _, m := range ms {
		until = append(until, q.renew(m, now))
	}
	return answer{code: 200, text: "OK", body: amqp.Map{{Key: "expirations", Value: until}}}
}

// updateDisposition settles by lock token, for clients whose link is gone or which
// have received by number.
func (q *queue) updateDisposition(r *request, now time.Time) answer {
	ms, ok := q.byTokens(r.get("lock-tokens"), now)
	if !ok {
		return gone410
	}
	st := settlement{reason: r.text("deadletter-reason"), description: r.text("deadletter-description")}
	switch r.text("disposition-status") {
	case "completed":
		st.verb = complete
	case "abandoned":
		st.verb = abandon
	case "suspended":
		st.verb = deadletter
	case "defered":
		st.verb = deferral
	default:
		return failed(400, "com.microsoft:argument-error", "The disposition status '"+r.text("disposition-status")+"' is not known.")
	}
	change, _ := r.get("properties-to-modify").(amqp.Map)
	for _, e := range change {
		if k, ok := e.Key.(string); ok {
			st.props = append(st.props, property{k, amqp.AppendValue(nil, e.Value)})
		}
	}
	for _, m := range ms {
		if e := q.settle(m.token, st, now); e.Condition != "" {
			return failed(410, e.Condition, e.Description)
		}
	}
	q.pump(now)
	return answer{code: 200, text: "OK"}
}

// receiveByNumber hands out deferred messages (SB-F-22). Every one must be there,
// or none is handed out.
func (q *queue) receiveByNumber(r *request, now time.Time) answer {
	sid, bySession := r.get("session-id").(string)
	var ms []*message
	for _, v := range items(r.get("sequence-numbers")) {
		n, _ := integer(v)
		m := q.held[n]
		if m == nil || m.state != deferred || bySession && m.sid != sid || slices.Contains(ms, m) {
			return notThere("Failed to lock one or more specified messages. The message with sequence number %d does not exist, or is not deferred.", n)
		}
		ms = append(ms, m)
	}
	var ss *session
	if q.sessionful() {
		l := q.holder(r)
		if l == nil {
			return failed(410, sessionLost.Condition, sessionLostText)
		}
		ss = l.session
	}
	keep, _ := integer(r.get("receiver-settle-mode"))
	for _, m := range ms {
		delete(q.held, m.seq)
		if keep != 0 {
			m.session = ss
			q.lock(m, ss, now)
		}
	}
	a := messages(ms)
	if keep == 0 { // receive and delete
		for _, m := range ms {
			q.remove(m)
		}
	}
	if inj := q.s.strikeHandout("com.microsoft:receive-by-sequence-number", q.path); inj != nil {
		inj.Answered(true)
		r.replyTo = "" // nobody gets it
		if inj.Fault().Cut {
			r.c.cut()
		}
	}
	return a
}

// schedule stores messages for later (SB-F-07, SB-F-28).
func (s *Server) schedule(r *request, t target, now time.Time) answer {
	var ms []message
	for _, v := range items(r.get("messages")) {
		e, _ := v.(amqp.Map)
		b, _ := e.Get("message").([]byte)
		read, refused := readMessages(b, 0, t.maxSize())
		if refused.Condition != "" {
			return failed(400, refused.Condition, refused.Description)
		}
		if len(b) > t.maxSize() {
			return failed(400, "amqp:link:message-size-exceeded", "The message is too large.")
		}
		ms = append(ms, read...)
	}
	if e := t.accept(ms, now); e.Condition != "" {
		return failed(400, e.Condition, e.Description)
	}
	numbers := make([]int64, len(ms))
	for i := range ms {
		numbers[i] = ms[i].seq
	}
	return answer{code: 200, text: "OK", body: amqp.Map{{Key: "sequence-numbers", Value: numbers}}}
}

// cancelScheduled removes messages whose time has not come. Every one must be
// there (SB-F-07), or none is removed.
func cancelScheduled(r *request, t target) answer {
	q, ok := t.(*queue)
	if !ok {
		q = t.(*topic).waiting
	}
	var ms []*message
	for _, v := range items(r.get("sequence-numbers")) {
		n, _ := integer(v)
		m := q.held[n]
		if m == nil || m.state != scheduled {
			return notThere("The scheduled message with sequence number %d could not be found.", n)
		}
		ms = append(ms, m)
	}
	for _, m := range ms {
		if m.state == scheduled {
			q.remove(m)
		}
	}
	return answer{code: 200, text: "OK"}
}

// holder is the link on the request's connection that holds the session which the
// request is about; nil if it is lost.
func (q *queue) holder(r *request) *link {
	name, _ := r.props.Get("associated-link-name").(string)
	ss := q.sessions[r.text("session-id")]
	if r.get("session-id") == nil { // by the link alone
		for l := range q.receivers {
			if l.session != nil && l.attach.Name == name && l.ch.c == r.c {
				return l
			}
		}
		return nil
	}
	if ss == nil || ss.holder == nil || ss.holder.ch.c != r.c || name != "" && ss.holder.attach.Name != name {
		return nil
	}
	return ss.holder
}

// sessionRequest does what only the holder of a session may.
func (q *queue) sessionRequest(r *request, now time.Time) answer {
	l := q.holder(r)
	if l == nil || !l.session.until.After(now) {
		return failed(410, sessionLost.Condition, sessionLostText)
	}
	ss := l.session
	switch r.operation {
	case "com.microsoft:renew-session-lock":
		ss.renew(now)
		return answer{code: 200, text: "OK", body: amqp.Map{{Key: "expiration", Value: ss.until}}}
	case "com.microsoft:get-session-state":
		var state any
		if ss.state != nil {
			state = ss.state
		}
		return answer{code: 200, text: "OK", body: amqp.Map{{Key: "session-state", Value: state}}}
	}
	state, _ := r.get("session-state").([]byte)
	if len(state) > q.maxSize() {
		return failed(400, "com.microsoft:argument-error", "The session state is too large.") // SB-F-25
	}
	// Nothing, or an empty state, clears it.
	if ss.state = nil; len(state) > 0 {
		ss.state = bytes.Clone(state)
	}
	ss.stateSet = now
	return answer{code: 200, text: "OK"}
}

// listSessions lists the sessions that have messages or a state, or, since a given
// time, those whose state was set after it. Clients ask for the former with a time
// in the year 10000.
func (q *queue) listSessions(r *request) answer {
	since, _ := r.get("last-updated-time").(time.Time)
	skip, _ := integer(r.get("skip"))
	top, _ := integer(r.get("top"))
	if !q.p.RequiresSession {
		return failed(400, "amqp:not-allowed", "The entity does not require sessions.")
	}
	var ids []string
	for id, ss := range q.sessions {
		if since.Year() >= 9999 && (ss.state != nil || ss.ready.n+ss.locked.n > 0) || ss.state != nil && ss.stateSet.After(since) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	skip = min(max(skip, 0), int64(len(ids)))
	ids = ids[skip:]
	ids = ids[:min(max(top, 0), int64(len(ids)))]
	if len(ids) == 0 {
		return answer{code: 204, text: "No content"}
	}
	return answer{code: 200, text: "OK", body: amqp.Map{{Key: "skip", Value: int32(skip) + int32(len(ids))}, {Key: "sessions-ids", Value: ids}}}
}
