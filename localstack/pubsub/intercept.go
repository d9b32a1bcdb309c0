package pubsub

import (
	"context"
	"fmt"
	"strings"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/onceline/onceline/localstack/fault"
)

var insecureCredentials = insecure.NewCredentials()

// refuse says what no fault can ask for here.
func refuse(f fault.Fault) error {
	if f.Kind == fault.Error && (f.Code < 0 || f.Code > int(codes.Unauthenticated)) {
		return fmt.Errorf("fault on %s: code %d is no gRPC status", f.Op, f.Code)
	}
	return nil
}

// classOf is the class of a method.
func classOf(method string) fault.Ops {
	switch method {
	case "Publish":
		return fault.Publish.Ops()
	case "Pull", "StreamingPull":
		return fault.Receive.Ops()
	case "Acknowledge", "ModifyAckDeadline":
		return fault.Settle.Ops()
	}
	return fault.Admin.Ops()
}

// unary carries out faults and traces.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	method := info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]
	concerns := func(match string) bool { return s.about(req, match) }
	i := s.faults.Strike(classOf(method), method, concerns)
	if i == nil {
		res, err := handler(ctx, req)
		if handsOut(res) {
			if i = s.faults.StrikeHandout(method, concerns); i != nil {
				i.Answered(true)
				s.note(method, req, res, errLost)
				return nil, hold(ctx, i.Fault().Cut)
			}
		}
		s.note(method, req, res, err)
		return res, err
	}
	switch f := i.Fault(); f.Kind {
	case fault.Delay:
		if err := s.delay(ctx, i); err != nil {
			return nil, err
		}
		if f.Cut {
			defer cut(ctx)
		}
		res, err := handler(ctx, req)
		s.note(method, req, res, err)
		return res, err
	case fault.LoseResponse:
		res, err := handler(ctx, req)
		i.Answered(err == nil)
		s.note(method, req, res, errLost)
		return nil, hold(ctx, f.Cut)
	default:
		err := s.strike(ctx, f)
		s.note(method, req, nil, err)
		return nil, err
	}
}

// stream is unary for StreamingPull, whose requests come later: it is struck as
// it opens, by any Match.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	const method = "StreamingPull"
	ctx := ss.Context()
	first := new(pb.StreamingPullRequest)
	if err := ss.RecvMsg(first); err != nil {
		return err
	}
	opened := &openStream{ServerStream: ss, first: first}
	i := s.faults.Strike(classOf(method), method, func(match string) bool { return s.about(first, match) })
	if i != nil {
		f := i.Fault()
		if f.Kind != fault.Delay {
			err := s.strike(ctx, f)
			s.note(method, first, nil, err)
			return err
		}
		if err := s.delay(ctx, i); err != nil {
			return err
		}
		if f.Cut {
			defer cut(ctx)
		}
	}
	s.note(method, first, nil, nil)
	return handler(srv, opened)
}

// openStream hands out the request that was read already.
type openStream struct {
	grpc.ServerStream
	first *pb.StreamingPullRequest
}

func (o *openStream) RecvMsg(m any) error {
	if first := o.first; first != nil {
		o.first = nil
		r := m.(*pb.StreamingPullRequest)
		r.Subscription, r.AckIds = first.Subscription, first.AckIds
		r.ModifyDeadlineSeconds, r.ModifyDeadlineAckIds = first.ModifyDeadlineSeconds, first.ModifyDeadlineAckIds
		r.StreamAckDeadlineSeconds, r.ClientId = first.StreamAckDeadlineSeconds, first.ClientId
		r.MaxOutstandingMessages, r.MaxOutstandingBytes = first.MaxOutstandingMessages, first.MaxOutstandingBytes
		r.ProtocolVersion = first.ProtocolVersion
		return nil
	}
	return o.ServerStream.RecvMsg(m)
}

var errLost = status.Error(codes.Unavailable, "lost by an injected fault")

// strike carries out a fault that keeps a request from being applied.
func (s *Server) strike(ctx context.Context, f fault.Fault) error {
	switch f.Kind {
	case fault.Cut:
		cut(ctx)
		return errLost
	case fault.Error:
		code := codes.Code(f.Code)
		if code == codes.OK {
			code = codes.Unavailable
		}
		if f.Cut {
			defer cut(ctx)
		}
		return status.Error(code, "an injected fault")
	}
	return hold(ctx, f.Cut)
}

// hold leaves the client without an answer until it gives up, or without its
// connection.
func hold(ctx context.Context, cutToo bool) error {
	if cutToo {
		cut(ctx)
	}
	<-ctx.Done()
	// The server's own timer may ring before the client's: then this is what the
	// client gets, as it would from a transport that cuts the call off.
	return status.FromContextError(ctx.Err()).Err()
}

// cut closes the connection that the call came on.
func cut(ctx context.Context) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return
	}
	if info, ok := p.AuthInfo.(peerInfo); ok {
		_ = info.conn.Close() // the transport notices, and ends the calls
	}
}

// delay waits by the server's clock.
func (s *Server) delay(ctx context.Context, i *fault.Injection) error {
	due := make(chan struct{})
	t := s.clock.AfterFunc(i.Fault().Delay, func() { close(due) })
	defer t.Stop()
	select {
	case <-due:
		i.Answered(true)
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// handsOut reports whether an answer carries messages.
func handsOut(res any) bool {
	r, ok := res.(*pb.PullResponse)
	return ok && r != nil && len(r.ReceivedMessages) > 0
}

// entityOf is the full name of what a request is about.
func entityOf(req any) string {
	switch r := req.(type) {
	case interface{ GetSubscription() string }:
		return r.GetSubscription()
	case interface{ GetTopic() string }:
		if n, ok := req.(interface{ GetName() string }); ok {
			return n.GetName() // a Subscription, which names its topic too
		}
		return r.GetTopic()
	case interface{ GetTopic() *pb.Topic }:
		return r.GetTopic().GetName()
	case interface{ GetSubscription() *pb.Subscription }:
		return r.GetSubscription().GetName()
	case interface{ GetName() string }:
		return r.GetName()
	case interface{ GetSnapshot() string }:
		return r.GetSnapshot()
	case interface{ GetProject() string }:
		return r.GetProject()
	}
	return ""
}

// about reports whether a request is about match: the ID or the full name of its
// topic or subscription, or of that subscription's topic.
func (s *Server) about(req any, match string) bool { return s.concerns(entityOf(req), match) }

func (s *Server) concerns(name, match string) bool {
	if name == match || idOf(name) == match {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.subs[name]
	return q != nil && (q.cfg.Topic == match || idOf(q.cfg.Topic) == match)
}

// note traces a request.
func (s *Server) note(method string, req, res any, err error) {
	if s.trace == nil || s.traceOn != nil && !s.traceOn() {
		return
	}
	count := ""
	switch r := req.(type) {
	case *pb.PublishRequest:
		count = fmt.Sprintf(" messages=%d", len(r.Messages))
	case *pb.AcknowledgeRequest:
		count = fmt.Sprintf(" acks=%d", len(r.AckIds))
	case *pb.ModifyAckDeadlineRequest:
		count = fmt.Sprintf(" acks=%d deadline=%ds", len(r.AckIds), r.AckDeadlineSeconds)
	case *pb.PullRequest:
		if p, ok := res.(*pb.PullResponse); ok && p != nil {
			count = fmt.Sprintf(" messages=%d/%d", len(p.ReceivedMessages), r.MaxMessages)
		}
	}
	answer := "OK"
	if err != nil {
		answer = status.Convert(err).Code().String()
		if err == errLost {
			answer = "lost"
		}
	}
	s.trace(method + " " + entityOf(req) + count + " " + answer)
}
