package localstack

import (
	"context"
	"net"
	"strings"
	"testing"
)

// fronted is a broker that somebody else runs, behind a front.
type fronted struct{ serverFront }

func (fronted) start(context.Context, string) error  { return nil }
func (f fronted) stop(ctx context.Context) error     { return f.close(ctx) }
func (fronted) direct() string                       { return "" }
func (f fronted) reach(c net.Addr) (net.Conn, error) { return f.dial(c) }

// ProxyOfPubSub puts the front of the Pub/Sub emulator in front of a broker, for
// tests.
func ProxyOfPubSub(t *testing.T, url string) Emulator {
	t.Helper()
	e := &emulator{name: PubSubName, checkAPI: checkPubSubAPI}
	front, err := newPubSubFront(strings.TrimPrefix(url, "pubsub://"), e)
	if err != nil {
		t.Fatal(err)
	}
	return openFronted(t, e, front)
}

// ProxyOfSQS does so with that of the servers of the SQS API.
func ProxyOfSQS(t *testing.T, url string) *Server {
	t.Helper()
	e := &emulator{name: SQSName, checkAPI: checkSQSAPI}
	front := newSQSFront(strings.TrimPrefix(url, "sqs://"), &e.faults, &e.trace)
	openFronted(t, e, front)
	return &Server{e, &singleServer{front: func(string) (serverFront, error) { return front, nil }}}
}

func openFronted(t *testing.T, e *emulator, front serverFront) *emulator {
	t.Helper()
	b := fronted{front}
	p, err := listen(0, b.reach, servePlain)
	if err != nil {
		t.Fatal(err)
	}
	e.proxies, e.backend = []*proxy{p}, b
	if err := e.open(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	return e
}
