package pubsub

import (
	"sync"

	gax "github.com/googleapis/gax-go/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// once is what makes a call one RPC: the SDK's own retry would send a publish
// again whose first copy may be stored (PS-F-03), and hide that an answer was
// lost.
var once = gax.WithRetry(func() gax.Retryer { return nil })

// through are the options of a call that wants to know whether its request left:
// gRPC fills in the peer only for a call that a connection took. It is used again
// by later calls, for gRPC writes to it before a call returns, and not after.
type through struct {
	to   peer.Peer
	opts [2]gax.CallOption
}

var throughs = sync.Pool{New: func() any {
	t := new(through)
	t.opts = [2]gax.CallOption{once, gax.WithGRPCOptions(grpc.Peer(&t.to))}
	return t
}}

func newThrough() *through {
	t := throughs.Get().(*through)
	t.to = peer.Peer{}
	return t
}

// left reports whether the request may have reached the service, and gives t
// back.
func (t *through) left() bool {
	sent := t.to.Addr != nil
	throughs.Put(t)
	return sent
}
