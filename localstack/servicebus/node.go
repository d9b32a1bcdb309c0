package servicebus

import (
	"errors"
	"strings"
	"time"

	"github.com/onceline/onceline/localstack/fault"
	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// mgmtNode is where requests go: $cbs or the $management of an entity.
type mgmtNode struct {
	cbs    bool
	entity string // the entity's path; "" for $cbs
}

// node returns the node at an address; nil if there is none.
func (s *Server) node(address string) *mgmtNode {
	k := key(address)
	if k == "$cbs" {
		return &mgmtNode{cbs: true}
	}
	entity, ok := strings.CutSuffix(k, "/$management")
	if !ok {
		return nil
	}
	if q := s.queues[entity]; q != nil {
		return &mgmtNode{entity: q.path}
	}
	if t := s.topics[entity]; t != nil {
		return &mgmtNode{entity: t.path}
	}
	return nil
}

// hasNode says whether the connection has a link like l to $cbs.
func (c *conn) hasNode(l *link) bool {
	for _, ch := range c.channels {
		for _, o := range ch.links {
			if o != l && o.node != nil && o.node.cbs && o.receives == l.receives {
				return true
			}
		}
	}
	return false
}

// request is what a client asks a node.
type request struct {
	c         *conn
	entity    string
	id        amqp.Raw // of the message, for the answer
	replyTo   string
	operation string
	props     amqp.Map
	body      any
}

// get returns a value of the body's map.
func (r *request) get(key string) any {
	m, _ := r.body.(amqp.Map)
	return m.Get(key)
}

// text returns a string of the body's map.
func (r *request) text(key string) string {
	s, _ := r.get(key).(string)
	return s
}

// answer is what a node says.
type answer struct {
	code      int32
	text      string
	condition amqp.Symbol
	body      any
}

// failed is the answer to a request that can't be met.
func failed(code int32, condition amqp.Symbol, text string) answer {
	return answer{code: code, condition: condition, text: text}
}

func readRequest(b []byte) (request, error) {
	var r request
	m, err := amqp.ReadMessage(b)
	if err != nil {
		return r, err
	}
	p, err := amqp.ReadProperties(m.Properties)
	if err != nil {
		return r, err
	}
	if p.MessageID == nil || p.ReplyTo == nil {
		return r, errors.New("a request needs message ID and reply-to")
	}
	r.id, r.replyTo = amqp.AppendValue(nil, p.MessageID), *p.ReplyTo
	if m.Application != nil {
		reader := amqp.NewReader(m.Application)
		v, err := reader.Value()
		if err != nil {
			return r, err
		}
		r.props, _ = v.(amqp.Map)
	}
	r.operation, _ = r.props.Get("operation").(string)
	r.body, err = m.Value()
	return r, err
}

// request takes a message that a client sends to a node.
func (l *link) request(t amqp.Transfer, b []byte) {
	r, err := readRequest(b)
	ch := l.ch
	s := ch.c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.gone {
		return
	}
	if !t.Settled {
		ch.dispose(amqp.RoleReceiver, t.DeliveryID, amqp.Accepted)
	}
	if err != nil {
		s.tracef("request %s: %v", l.path(), err)
		return // there is nobody to answer
	}
	r.c, r.entity = ch.c, l.node.entity
	if l.node.cbs {
		name, _ := r.props.Get("name").(string)
		r.entity = s.properName(entityOf(name))
	}
	op := operationClass(r.operation)
	apply := func(now time.Time, answer bool) bool {
		a := s.perform(&r, l.node.cbs, now)
		s.tracef("%s %s: %d %s", r.operation, r.entity, a.code, a.text)
		if answer {
			r.reply(a)
		}
		return a.code < 300
	}
	if inj := s.strike(op, r.operation, r.entity); inj != nil {
		s.carryOut(inj, ch.c, apply, func(code int) {
			if code == 0 {
				code = busy
			}
			e := errorFor(code)
			r.reply(failed(int32(code), e.Condition, e.Description))
		})
		return
	}
	apply(s.clock.Now(), true)
}

func operationClass(name string) fault.Op {
	switch name {
	case "com.microsoft:schedule-message":
		return fault.Publish
	case "com.microsoft:receive-by-sequence-number":
		return fault.Receive
	case "com.microsoft:update-disposition", "com.microsoft:renew-lock", "com.microsoft:renew-session-lock":
		return fault.Settle
	}
	return fault.Admin
}

// properName is an entity's path as it was created, for its key.
func (s *Server) properName(k string) string {
	if q := s.queues[k]; q != nil {
		return q.path
	}
	if t := s.topics[k]; t != nil {
		return t.path
	}
	return k
}

func (s *Server) perform(r *request, cbs bool, now time.Time) answer {
	if cbs {
		return s.putToken(r)
	}
	return s.manage(r, now)
}

// putToken takes a token for an entity, which then may be attached to. One that
// doesn't exist is told as 404, a token that is no good as 401 (SB-F-42).
func (s *Server) putToken(r *request) answer {
	if r.operation != "put-token" {
		return failed(400, "amqp:not-implemented", "The operation '"+r.operation+"' is not supported by $cbs.")
	}
	audience, _ := r.props.Get("name").(string)
	token, _ := r.body.(string)
	if status, text := s.checkToken(token, audience); status != 202 {
		return failed(int32(status), "amqp:unauthorized-access", text)
	}
	k := entityOf(audience)
	if k != "" && s.queues[k] == nil && s.topics[k] == nil {
		return failed(404, "amqp:not-found", "The messaging entity '"+r.entity+"' could not be found.")
	}
	r.c.claims[k] = true
	return answer{code: 202, text: "Accepted"}
}

// reply sends an answer on the link that the request names.
func (r *request) reply(a answer) {
	l := r.c.responseLink(r.replyTo)
	if l == nil {
		return
	}
	b := amqp.AppendResponse(nil, r.id)
	w := amqp.BeginApplication(b)
	code, text := "statusCode", "statusDescription"
	if l.node.cbs {
		code, text = "status-code", "status-description"
	}
	w.Text(code)
	w.B = amqp.AppendValue(w.B, a.code)
	w.Text(text)
	w.B = amqp.AppendValue(w.B, a.text)
	if a.condition != "" {
		w.Text("errorCondition")
		w.B = amqp.AppendValue(w.B, a.condition)
	}
	l.replies = append(l.replies, amqp.AppendBody(w.End(), a.body))
	l.flushReplies()
}

// maxReplies bounds the answers that wait for credit on one link.
const maxReplies = 10000

// responseLink is the link on which a client wants the answer: the one whose target
// is what the request named as reply-to. Some clients give no target, and name the
// link itself.
func (c *conn) responseLink(replyTo string) *link {
	for _, ch := range c.channels {
		for _, l := range ch.links {
			if l.node != nil && !l.receives && !l.gone && len(l.replies) < maxReplies &&
				(l.attach.TargetAddress == replyTo || l.attach.TargetAddress == "" && l.attach.Name == replyTo) {
				return l
			}
		}
	}
	return nil
}

// flushReplies sends the answers that there is credit for. They often come before
// the first credit does.
func (l *link) flushReplies() {
	for len(l.replies) > 0 && l.credit > 0 && l.ch.room > 0 && len(l.ch.held) == 0 {
		l.credit--
		l.count++
		id := l.ch.out.add(delivery{})
		l.ch.sendMessage(amqp.Transfer{Handle: l.attach.Handle, DeliveryID: id,
			DeliveryTag: []byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}, Settled: true}, l.replies[0])
		l.replies = l.replies[1:]
	}
}
