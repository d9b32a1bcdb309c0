package localstack

import (
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/onceline/onceline/localstack/fault"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafkaFront is what the links of all brokers of one cluster share.
type kafkaFront struct {
	faults  *fault.Set
	trace   *tracer
	brokers func() []string // host:port of each node ID, as advertised
	topics  sync.Map        // [16]byte → string, learned from responses
	groups  *groupConfigs
	asks    bool // for a user and password, of the model
}

func (k *kafkaFront) topic(id [16]byte) string {
	name, _ := k.topics.Load(id)
	s, _ := name.(string)
	return s
}

// kafkaLink is a joined pair of connections that speak the Kafka protocol, in
// which a broker answers the requests of a connection in their order.
type kafkaLink struct {
	*link
	*kafkaFront
	toServer, toClient door

	held    *Injection // by the fault that delays the next request; requests only
	session map[string]map[[16]byte]struct{}

	mu   sync.Mutex
	open []kafkaOpen // requests sent whose response is to come, oldest first

	// answering is held from taking a response out of open until it is written,
	// so that an answer of our own can find its place behind it.
	answering sync.Mutex
}

// kafkaOpen is a request that waits for its response.
type kafkaOpen struct {
	key, version int16
	corr         int32
	group        string // of a ShareFetch
	configs      *kmsg.IncrementalAlterConfigsRequest
	lost         *Injection // whose response is to be dropped
	behind       []byte     // answers of our own that belong behind the response
}

func serveKafka(l *link, front *kafkaFront) {
	k := &kafkaLink{
		link: l, kafkaFront: front, session: map[string]map[[16]byte]struct{}{},
		toServer: door{link: l, conn: l.server},
		toClient: door{link: l, conn: l.client},
	}
	l.both(
		func() { pump(l.client, &k.toServer, k.request) },
		func() { pump(l.server, &k.toClient, k.response); k.turnAway() },
	)
}

// turnAway answers a client whose password the model didn't like. The model closes
// the connection without a word, which looks like a broker that is down; Kafka says
// why first (KAF-F-120).
func (k *kafkaLink) turnAway() {
	if !k.asks {
		return
	}
	k.mu.Lock()
	var last kafkaOpen
	if n := len(k.open); n > 0 {
		last = k.open[n-1]
	}
	k.mu.Unlock()
	if last.key != keySASLAuthenticate {
		return
	}
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.SetVersion(last.version)
	k.toClient.write(kafkaError(req, last.corr, int(kerr.SaslAuthenticationFailed.Code), nil))
	k.cut()
}

// request decides on the next frame of the client.
func (k *kafkaLink) request(b []byte) (int, fate) {
	size := kafkaFrameSize(b, kafkaHeader)
	if size < 0 {
		return len(b), dropAndCut // as Kafka does; the model would make room for any size
	}
	if size == 0 {
		return 0, forward
	}
	frame := b[:size]
	r := parseKafkaRequest(frame)
	if k.trace.on() {
		k.trace.line(fmt.Sprintf("%s v%d, %d bytes", kmsg.NameForKey(r.key), r.version, size))
	}
	if k.held != nil {
		return size, k.release(&r, frame)
	}
	open := kafkaOpen{key: r.key, version: r.version, corr: r.corr}
	k.note(&open, &r)
	for _, i := range k.faults.Armed() {
		if !k.concerns(i, &r, open.group) || !i.Take() {
			continue
		}
		switch i.Fault().Kind {
		case LoseResponse:
			open.lost = i
			k.sent(open)
			return size, forward
		case Delay:
			k.held = i
			return size, flushFirst
		case Error:
			k.refuse(i, &r)
		case Cut:
			return size, dropAndCut
		}
		return size, afterDrop(i)
	}
	if r.answered() {
		k.sent(open)
	}
	return size, forward
}

func (k *kafkaLink) sent(o kafkaOpen) {
	k.mu.Lock()
	k.open = append(k.open, o)
	k.mu.Unlock()
}

// concerns says whether a fault strikes a request when it is sent.
func (k *kafkaLink) concerns(i *Injection, r *kafkaRequest, group string) bool {
	f := i.Fault()
	if f.API != "" && f.API != kmsg.NameForKey(r.key) {
		return false
	}
	ops := r.ops()
	if !f.Op.Covers(ops) && (f.API == "" || f.Op != Any) {
		return false
	}
	if f.Kind == LoseResponse {
		// Records handed out are struck when the response shows that there are any.
		if ops == Receive.Ops() || f.Op == Receive || !r.answered() {
			return false
		}
	}
	return f.Match == "" || k.matches(f.Match, r.decode(), group)
}

func (k *kafkaLink) matches(entity string, msg any, group string) bool {
	if msg != nil && names(msg, entity, k.topic) || group == entity {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for id := range k.session[group] {
		if k.topic(id) == entity {
			return true
		}
	}
	return false
}

// note keeps what the response of a request will not tell.
func (k *kafkaLink) note(open *kafkaOpen, r *kafkaRequest) {
	switch r.key {
	case keyShareFetch:
		open.group = k.remember(r)
	case keyAlterConfigs:
		open.configs, _ = r.decode().(*kmsg.IncrementalAlterConfigsRequest)
	}
}

// remember notes the topics of a share session, which its later requests leave
// out, and returns the group.
func (k *kafkaLink) remember(r *kafkaRequest) string {
	req, ok := r.decode().(*kmsg.ShareFetchRequest)
	if !ok || req.GroupID == nil {
		return ""
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	topics := k.session[*req.GroupID]
	if topics == nil {
		topics = map[[16]byte]struct{}{}
		k.session[*req.GroupID] = topics
	}
	for i := range req.Topics {
		topics[req.Topics[i].TopicID] = struct{}{}
	}
	return *req.GroupID
}

// release sends the delayed request on when its time has come. What the client
// sent before it has been passed on already.
func (k *kafkaLink) release(r *kafkaRequest, frame []byte) fate {
	i := k.held
	k.held = nil
	t := time.NewTimer(i.Fault().Delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-k.done:
		return dropAndCut
	}
	if r.answered() {
		open := kafkaOpen{key: r.key, version: r.version, corr: r.corr}
		k.note(&open, r)
		k.sent(open)
	}
	i.Answered(true) // before the response can arrive
	k.toServer.write(frame)
	return afterDrop(i)
}

// refuse answers a request with an error, behind the responses that are due
// before it.
func (k *kafkaLink) refuse(i *Injection, r *kafkaRequest) {
	req := r.decode()
	if req == nil || !r.answered() {
		return
	}
	answer := kafkaError(req, r.corr, i.Fault().Code, k.brokers())
	k.answering.Lock()
	defer k.answering.Unlock()
	k.mu.Lock()
	if n := len(k.open); n > 0 {
		k.open[n-1].behind = append(k.open[n-1].behind, answer...)
		answer = nil
	}
	k.mu.Unlock()
	k.toClient.write(answer)
}

// response passes the next frame of the broker on, or drops it. It writes by
// itself, for an answer of ours may have to follow the frame.
func (k *kafkaLink) response(b []byte) (int, fate) {
	size := kafkaFrameSize(b, kafkaResponseHeader)
	if size <= 0 {
		return size, forward
	}
	k.answering.Lock()
	defer k.answering.Unlock()
	frame := b[:size]
	open := k.take(int32(binary.BigEndian.Uint32(frame[4:])))
	switch open.key {
	case keyMetadata, keyCreateTopics, keyAlterConfigs:
		k.learn(frame, open)
	}
	what := k.decide(frame, open)
	if what == forward {
		k.toClient.write(frame) // if that fails, so does the next read
		what = drop
	}
	k.toClient.write(open.behind)
	return size, what
}

// take removes the request that a response answers from those that wait.
func (k *kafkaLink) take(corr int32) kafkaOpen {
	k.mu.Lock()
	defer k.mu.Unlock()
	for n, o := range k.open {
		if o.corr == corr {
			k.open = append(k.open[:n], k.open[n+1:]...)
			return o
		}
	}
	return kafkaOpen{key: -1}
}

// decide settles the fate of a response: forward, drop or dropAndCut.
func (k *kafkaLink) decide(frame []byte, o kafkaOpen) fate {
	if i := o.lost; i != nil {
		resp := decodeKafkaResponse(frame, o.key, o.version)
		i.Answered(resp == nil || !refused(resp))
		return afterDrop(i)
	}
	armed := k.faults.Armed()
	if armed == nil || o.key != keyFetch && o.key != keyShareFetch {
		return forward
	}
	var resp kmsg.Response
	for _, i := range armed {
		f := i.Fault()
		if f.Kind != LoseResponse || !f.Op.Covers(Receive.Ops()) || f.API != "" && f.API != kmsg.NameForKey(o.key) {
			continue
		}
		if resp == nil {
			if resp = decodeKafkaResponse(frame, o.key, o.version); resp == nil || !carriesRecords(resp) {
				return forward
			}
		}
		if (f.Match == "" || names(resp, f.Match, k.topic) || o.group != "" && o.group == f.Match) && i.Take() {
			i.Answered(true)
			return afterDrop(i)
		}
	}
	return forward
}

// learn notes the names of topic IDs, by which later requests go, and the group
// configs that the broker has taken.
func (k *kafkaLink) learn(frame []byte, o kafkaOpen) {
	switch r := decodeKafkaResponse(frame, o.key, o.version).(type) {
	case *kmsg.MetadataResponse:
		for i := range r.Topics {
			if t := &r.Topics[i]; t.Topic != nil && t.TopicID != [16]byte{} {
				k.topics.Store(t.TopicID, *t.Topic)
			}
		}
	case *kmsg.CreateTopicsResponse:
		for i := range r.Topics {
			if t := &r.Topics[i]; t.TopicID != [16]byte{} {
				k.topics.Store(t.TopicID, t.Topic)
			}
		}
	case *kmsg.IncrementalAlterConfigsResponse:
		if o.configs != nil {
			k.groups.altered(o.configs, r)
		}
	}
}

// metadataBrokers describes the proxies as the brokers of a cluster.
func metadataBrokers(addrs []string) []kmsg.MetadataResponseBroker {
	brokers := make([]kmsg.MetadataResponseBroker, 0, len(addrs))
	for id, addr := range addrs {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			continue
		}
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = int32(id), host, int32(n)
		brokers = append(brokers, b)
	}
	return brokers
}
