package servicebus

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/onceline/onceline/localstack/fault"
)

// maxDescription bounds the body of a request.
const maxDescription = 1 << 20

// atomRequest is a request of the HTTP interface, by which entities are
// administered: a path of names, and for PUT a description.
type atomRequest struct {
	method, path string
	update       bool // If-Match was given: what is there is changed
	skip, top    int
	host, query  string
	body         []byte
}

// atomAnswer is a status and a document, whose root is entry, feed or error.
type atomAnswer struct {
	status int
	body   string
}

// serveAtom serves the HTTP interface.
func (s *Server) serveAtom(w http.ResponseWriter, hr *http.Request) {
	r := atomRequest{method: hr.Method, path: strings.Trim(hr.URL.Path, "/"), update: hr.Header.Get("If-Match") != "",
		host: hr.Host, query: hr.URL.RawQuery, top: 100}
	q := hr.URL.Query()
	if n, err := strconv.Atoi(q.Get("$skip")); err == nil && n > 0 {
		r.skip = n
	}
	if n, err := strconv.Atoi(q.Get("$top")); err == nil && n > 0 {
		r.top = min(n, 1000)
	}
	var err error
	if r.body, err = io.ReadAll(http.MaxBytesReader(w, hr.Body, maxDescription)); err != nil {
		write(w, refusal(http.StatusRequestEntityTooLarge, err.Error()))
		return
	}
	if status, text := s.checkToken(hr.Header.Get("Authorization"), "https://"+hr.Host+"/"+r.path); status != 202 {
		write(w, refusal(status, text))
		return
	}
	if inj := s.strike(fault.Admin, r.method, strings.ToLower(r.path)); inj != nil {
		s.atomFault(inj, w, hr, &r)
		return
	}
	write(w, s.administer(&r))
}

// atomFault does to a request what a fault says.
func (s *Server) atomFault(inj *fault.Injection, w http.ResponseWriter, hr *http.Request, r *atomRequest) {
	f := inj.Fault()
	switch f.Kind {
	case fault.LoseResponse:
		inj.Answered(s.administer(r).status < 300)
	case fault.Delay:
		due := make(chan struct{})
		t := s.clock.AfterFunc(f.Delay, func() { close(due) })
		select {
		case <-due:
			inj.Answered(true)
			write(w, s.administer(r))
		case <-hr.Context().Done():
			t.Stop()
		}
		return
	case fault.Error:
		code := f.Code
		if code < 400 || code > 599 {
			code = busy
		}
		write(w, refusal(code, "SubCode=0. A fault was injected."))
		return
	}
	if f.Kind != fault.Cut && !f.Cut {
		<-hr.Context().Done() // no answer comes
	}
	panic(http.ErrAbortHandler)
}

func write(w http.ResponseWriter, a atomAnswer) {
	w.Header().Set("Content-Type", "application/atom+xml;type=entry;charset=utf-8")
	w.WriteHeader(a.status)
	io.WriteString(w, a.body)
}

// refusal is the document of an error.
func refusal(status int, detail string) atomAnswer {
	return atomAnswer{status, fmt.Sprintf("<Error><Code>%d</Code><Detail>%s</Detail></Error>", status, escape(detail))}
}

func refuseFor(err error) atomAnswer {
	switch {
	case errors.Is(err, ErrNotFound):
		return refusal(http.StatusNotFound, "SubCode=40400. Not Found. "+err.Error())
	case errors.Is(err, ErrExists):
		return refusal(http.StatusConflict, "SubCode=40900. Conflict. "+err.Error())
	}
	return refusal(http.StatusBadRequest, "SubCode=40000. Bad Request. "+err.Error())
}

// administer does what a request asks for.
func (s *Server) administer(r *atomRequest) atomAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.route(r)
	s.tracef("http %s /%s: %d", r.method, r.path, a.status)
	return a
}

// route finds what a path is of: an entity, a subscription of a topic, a rule of a
// subscription, or a list of one of these.
func (s *Server) route(r *atomRequest) atomAnswer {
	lower := strings.ToLower(r.path)
	switch lower {
	case "$resources/queues":
		return s.listQueues(r)
	case "$resources/topics":
		return s.listTopics(r)
	case "$namespaceinfo":
		return s.namespaceInfo(r)
	}
	topicEnd, subStart, ok := segment(lower, "subscriptions")
	if !ok {
		return s.entityRequest(r)
	}
	t := s.topics[lower[:topicEnd]]
	if t == nil {
		return refuseFor(fmt.Errorf("%w: %s", ErrNotFound, r.path[:topicEnd]))
	}
	if subStart == len(r.path) {
		return s.listSubscriptions(r, t)
	}
	subEnd, ruleStart, ok := segment(lower[subStart:], "rules")
	if !ok {
		return s.subscriptionRequest(r, t, r.path[subStart:])
	}
	name := r.path[subStart : subStart+subEnd]
	q := t.sub(name)
	if q == nil {
		return refuseFor(fmt.Errorf("%w: %s", ErrNotFound, name))
	}
	if ruleStart += subStart; ruleStart == len(r.path) {
		return s.listRules(r, q)
	}
	return s.rulesRequest(r, q, r.path[ruleStart:])
}

// segment finds a segment of a name in a path: where what is before it ends, and
// where what is behind it begins.
func segment(path, name string) (end, start int, ok bool) {
	if rest, found := strings.CutSuffix(path, "/"+name); found {
		return len(rest), len(path), true
	}
	i := strings.Index(path, "/"+name+"/")
	return i, i + len(name) + 2, i >= 0
}

// entityRequest is about a queue or topic.
func (s *Server) entityRequest(r *atomRequest) atomAnswer {
	k := key(r.path)
	q, t := s.queues[k], s.topics[k]
	switch r.method {
	case http.MethodGet:
		switch {
		case q != nil && q.parent == nil:
			return s.entry(r, http.StatusOK, q.path, q.describe())
		case t != nil:
			return s.entry(r, http.StatusOK, t.path, t.describe())
		}
		// So the service tells that there is no such entity.
		return atomAnswer{http.StatusOK, `<feed xmlns="http://www.w3.org/2005/Atom"><title type="text">Publicly Listed Services</title>` +
			`<id>https://` + escape(r.host) + `/` + escape(r.path) + `</id><updated>` + at(s.clock.Now()) + `</updated></feed>`}
	case http.MethodDelete:
		if err := s.delete(r.path); err != nil {
			return refuseFor(err)
		}
		return atomAnswer{status: http.StatusOK}
	case http.MethodPut:
	default:
		return refusal(http.StatusMethodNotAllowed, "SubCode=40500. Method not allowed.")
	}
	var doc document
	if err := xml.Unmarshal(r.body, &doc); err != nil {
		return refuseFor(fmt.Errorf("%w: %v", ErrInvalid, err))
	}
	d := doc.Queue
	if d == nil {
		d = doc.Topic
	}
	if d == nil {
		return refuseFor(fmt.Errorf("%w: the content is no description of a queue or topic", ErrInvalid))
	}
	p, err := d.properties()
	if err != nil {
		return refuseFor(fmt.Errorf("%w: %v", ErrInvalid, err))
	}
	status := http.StatusCreated
	switch {
	case r.update && doc.Queue != nil && q != nil && q.parent == nil:
		status, err = http.StatusOK, s.updateQueue(q, p)
	case r.update && doc.Topic != nil && t != nil:
		status, err = http.StatusOK, s.updateTopic(t, p)
	case r.update:
		err = fmt.Errorf("%w: %s", ErrNotFound, r.path)
	case doc.Queue != nil:
		err = s.createQueue(r.path, p)
	default:
		err = s.createTopic(r.path, p)
	}
	if err != nil {
		return refuseFor(err)
	}
	if q := s.queues[k]; q != nil {
		return s.entry(r, status, q.path, q.describe())
	}
	return s.entry(r, status, s.topics[k].path, s.topics[k].describe())
}

// subscriptionRequest is about a subscription of t.
func (s *Server) subscriptionRequest(r *atomRequest, t *topic, name string) atomAnswer {
	q := t.sub(name)
	switch {
	case r.method == http.MethodPut:
		return s.putSubscription(r, t, q, name)
	case q == nil:
		return refuseFor(fmt.Errorf("%w: %s", ErrNotFound, r.path))
	case r.method == http.MethodGet:
		return s.entry(r, http.StatusOK, q.lastName(), q.describe())
	case r.method == http.MethodDelete:
		s.drop(q)
		return atomAnswer{status: http.StatusOK}
	}
	return refusal(http.StatusMethodNotAllowed, "SubCode=40500. Method not allowed.")
}

func (s *Server) putSubscription(r *atomRequest, t *topic, q *queue, name string) atomAnswer {
	var doc document
	if err := xml.Unmarshal(r.body, &doc); err != nil || doc.Subscription == nil {
		return refuseFor(fmt.Errorf("%w: no description of a subscription: %v", ErrInvalid, err))
	}
	p, err := doc.Subscription.properties()
	if err != nil {
		return refuseFor(fmt.Errorf("%w: %v", ErrInvalid, err))
	}
	status := http.StatusCreated
	switch {
	case r.update && q == nil:
		err = fmt.Errorf("%w: %s", ErrNotFound, r.path)
	case r.update:
		status, err = http.StatusOK, s.updateQueue(q, p)
	default:
		first := &rule{name: defaultRule, filter: trueFilter{}}
		if d := doc.Subscription.DefaultRule; d != nil {
			if first, err = d.rule(); err != nil {
				return refuseFor(fmt.Errorf("%w: %v", ErrInvalid, err))
			}
		}
		err = s.createSubscription(t.path, name, p, first)
	}
	if err != nil {
		return refuseFor(err)
	}
	q = t.sub(name)
	return s.entry(r, status, q.lastName(), q.describe())
}
