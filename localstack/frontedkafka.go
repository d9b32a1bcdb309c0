package localstack

import (
	"encoding/binary"
	"net"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// frontNodes are the nodes of a Kafka that runs elsewhere, as far as it has told of
// them, each with a proxy of its own.
type frontNodes struct {
	fronted *Fronted
	front   *kafkaFront

	mu      sync.Mutex
	proxies map[string]string // by a node's advertised host:port
	ids     []string          // proxies by node ID; "" for one that isn't known
}

func newFrontNodes(f *Fronted) *frontNodes {
	n := &frontNodes{fronted: f, proxies: map[string]string{}}
	n.front = &kafkaFront{faults: &f.e.faults, trace: &f.e.trace, groups: new(groupConfigs), brokers: func() []string {
		n.mu.Lock()
		defer n.mu.Unlock()
		return append([]string(nil), n.ids...)
	}}
	return n
}

// serve is serveKafka for a broker that advertises itself.
func (n *frontNodes) serve(l *link) {
	k := &kafkaLink{
		link: l, kafkaFront: n.front, session: map[string]map[[16]byte]struct{}{},
		toServer: door{link: l, conn: l.server},
		toClient: door{link: l, conn: l.client},
	}
	l.both(
		func() { pump(l.client, &k.toServer, k.request) },
		func() { pump(l.server, &k.toClient, func(b []byte) (int, fate) { return n.response(k, b) }) },
	)
}

// response is kafkaLink's, which gets to see the proxies' addresses for the nodes'.
// It writes frames by itself, so one of another length may take a frame's place.
func (n *frontNodes) response(k *kafkaLink, b []byte) (int, fate) {
	size := kafkaFrameSize(b, kafkaResponseHeader)
	if size <= 0 {
		return size, forward
	}
	frame := b[:size]
	if key, version, ok := k.asked(int32(binary.BigEndian.Uint32(frame[4:]))); ok && n.mayTell(key) {
		if resp := decodeKafkaResponse(frame, key, version); resp != nil && n.rewrite(resp) {
			frame = kafkaFrame(resp, frame[4:8])
		}
	}
	_, what := k.response(frame)
	return size, what
}

// asked returns which request a response answers, without taking it.
func (k *kafkaLink) asked(corr int32) (key, version int16, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range k.open {
		if o.corr == corr {
			return o.key, o.version, true
		}
	}
	return 0, 0, false
}

// mayTell reports whether a response may hold a node's address. Those that carry
// records do only in a cluster, when a leader has moved.
func (n *frontNodes) mayTell(key int16) bool {
	switch kmsg.Key(key) {
	case kmsg.Metadata, kmsg.FindCoordinator, kmsg.DescribeCluster:
		return true
	case kmsg.Produce, kmsg.Fetch, kmsg.ShareFetch, kmsg.ShareAcknowledge:
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.proxies) > 1
	}
	return false
}

// rewrite puts the proxies' addresses in the places of the nodes', and reports
// whether there were any.
func (n *frontNodes) rewrite(resp kmsg.Response) bool {
	changed := false
	at := func(id int32, host *string, port *int32) {
		if *host != "" && n.proxied(id, host, port) {
			changed = true
		}
	}
	switch r := resp.(type) {
	case *kmsg.MetadataResponse:
		for i := range r.Brokers {
			at(r.Brokers[i].NodeID, &r.Brokers[i].Host, &r.Brokers[i].Port)
		}
	case *kmsg.FindCoordinatorResponse:
		at(r.NodeID, &r.Host, &r.Port)
		for i := range r.Coordinators {
			at(r.Coordinators[i].NodeID, &r.Coordinators[i].Host, &r.Coordinators[i].Port)
		}
	case *kmsg.DescribeClusterResponse:
		for i := range r.Brokers {
			at(r.Brokers[i].NodeID, &r.Brokers[i].Host, &r.Brokers[i].Port)
		}
	case *kmsg.ProduceResponse:
		for i := range r.Brokers {
			at(r.Brokers[i].NodeID, &r.Brokers[i].Host, &r.Brokers[i].Port)
		}
	case *kmsg.FetchResponse:
		for i := range r.Brokers {
			at(r.Brokers[i].NodeID, &r.Brokers[i].Host, &r.Brokers[i].Port)
		}
	case *kmsg.ShareFetchResponse:
		for i := range r.NodeEndpoints {
			at(r.NodeEndpoints[i].NodeID, &r.NodeEndpoints[i].Host, &r.NodeEndpoints[i].Port)
		}
	case *kmsg.ShareAcknowledgeResponse:
		for i := range r.NodeEndpoints {
			at(r.NodeEndpoints[i].NodeID, &r.NodeEndpoints[i].Host, &r.NodeEndpoints[i].Port)
		}
	}
	return changed
}

// proxied finds a node's proxy, and makes it at the first time.
func (n *frontNodes) proxied(id int32, host *string, port *int32) bool {
	node := net.JoinHostPort(*host, strconv.Itoa(int(*port)))
	n.mu.Lock()
	defer n.mu.Unlock()
	at := n.proxies[node]
	if at == "" {
		var err error
		if at, err = n.fronted.addAt(frontTo(node), n.serve); err != nil {
			return false // it is being closed, or ports have run out
		}
		n.proxies[node] = at
	}
	// IDs are small; a broken server must not make room for two thousand million.
	if id >= 0 && id < 1<<16 {
		for len(n.ids) <= int(id) {
			n.ids = append(n.ids, "")
		}
		n.ids[id] = at
	}
	h, p, err := net.SplitHostPort(at)
	if err != nil {
		return false
	}
	number, err := strconv.ParseInt(p, 10, 32)
	if err != nil {
		return false
	}
	*host, *port = h, int32(number)
	return true
}

// kafkaFrame makes the frame of a response.
func kafkaFrame(resp kmsg.Response, corr []byte) []byte {
	frame := append(make([]byte, 4, 512), corr...)
	if resp.IsFlexible() && resp.Key() != keyAPIVersions {
		frame = append(frame, 0) // no tagged fields
	}
	frame = resp.AppendTo(frame)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}
