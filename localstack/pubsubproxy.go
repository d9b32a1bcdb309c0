package localstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/onceline/onceline/localstack/fault"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// pubsubFront is a gRPC server between the proxy and a server of Pub/Sub. It passes
// the messages of all methods on as they are, and carries out faults as package
// localstack/pubsub does.
type pubsubFront struct {
	*emulator
	listener *pipeListener
	server   *grpc.Server
	behind   *grpc.ClientConn
	ctx      context.Context // ends with the front
	end      context.CancelFunc
	wg       sync.WaitGroup

	topics sync.Map // a subscription's full name → its topic's, as far as seen
}

// pubsubMaxMessage bounds a message in bytes, over the 10 MB that a request may have.
const pubsubMaxMessage = 64 << 20

// rawCodec passes messages as the bytes that they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
func (rawCodec) Name() string                       { return "proto" }

func newPubSubFront(address string, e *emulator) (*pubsubFront, error) {
	behind, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(pubsubMaxMessage), grpc.MaxCallSendMsgSize(pubsubMaxMessage)))
	if err != nil {
		return nil, fmt.Errorf("localstack: pubsub: %w", err)
	}
	f := &pubsubFront{emulator: e, listener: newPipeListener(&net.TCPAddr{}), behind: behind}
	f.ctx, f.end = context.WithCancel(context.Background())
	f.server = grpc.NewServer(grpc.UnknownServiceHandler(f.handle), grpc.ForceServerCodec(rawCodec{}), grpc.WaitForHandlers(true), grpc.MaxRecvMsgSize(pubsubMaxMessage), grpc.MaxSendMsgSize(pubsubMaxMessage))
	f.wg.Go(func() { _ = f.server.Serve(f.listener) }) // it ends by close
	return f, nil
}

func (f *pubsubFront) dial(client net.Addr) (net.Conn, error) { return f.listener.dial(client) }

func (f *pubsubFront) close(ctx context.Context) error {
	f.end()
	return errors.Join(
		waitFor(ctx, "calls to Pub/Sub", func() { f.server.Stop(); f.wg.Wait(); f.listener.conns.Wait() }),
		f.behind.Close())
}

// pubsubCall is a call of a client.
type pubsubCall struct {
	full, method string
	request      []byte // the first message
}

// handle passes a call on, with the faults that concern it.
func (f *pubsubFront) handle(_ any, client grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(client)
	c := &pubsubCall{full: full, method: full[strings.LastIndexByte(full, '/')+1:]}
	ctx := client.Context()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md.Copy())
	}
	if err := client.RecvMsg(&c.request); err != nil {
		return err
	}
	if f.trace.on() {
		f.trace.line(fmt.Sprintf("%s, %d bytes", c.method, len(c.request)))
	}
	concerns := func(name string) bool { return f.concerns(c, name) }
	i := f.faults.Strike(pubsubOps(c.method), c.method, concerns)
	if i == nil {
		return f.pass(ctx, client, c, concerns)
	}
	what := i.Fault()
	switch what.Kind {
	case LoseResponse:
		// The client may be gone when the answer comes.
		md, _ := metadata.FromOutgoingContext(ctx)
		var answer []byte
		err := f.behind.Invoke(metadata.NewOutgoingContext(f.ctx, md), c.full, &c.request, &answer)
		i.Answered(err == nil)
		return f.hold(ctx, what.Cut)
	case LoseRequest:
		return f.hold(ctx, what.Cut)
	case Cut:
		return f.hold(ctx, true)
	case Error:
		code := codes.Code(what.Code)
		if code == codes.OK {
			code = codes.Unavailable
		}
		if what.Cut {
			defer f.cut(ctx)
		}
		return status.Error(code, "injected fault")
	}
	t := time.NewTimer(what.Delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	i.Answered(true)
	if what.Cut {
		defer f.cut(ctx)
	}
	return f.pass(ctx, client, c, concerns)
}

// pass passes a call on and its answers back.
func (f *pubsubFront) pass(ctx context.Context, client grpc.ServerStream, c *pubsubCall, concerns func(string) bool) error {
	if c.method == "StreamingPull" {
		return f.stream(ctx, client, c, concerns)
	}
	var answer []byte
	if err := f.behind.Invoke(ctx, c.full, &c.request, &answer); err != nil {
		return err
	}
	switch c.method {
	case "Pull":
		if f.faults.Armed() != nil && handsOut(new(pb.PullResponse), answer) {
			if i := f.faults.StrikeHandout(c.method, concerns); i != nil {
				i.Answered(true)
				return f.hold(ctx, i.Fault().Cut)
			}
		}
	case "CreateSubscription", "GetSubscription", "UpdateSubscription":
		s := new(pb.Subscription)
		if proto.Unmarshal(answer, s) == nil {
			f.topics.Store(s.Name, s.Topic)
		}
	}
	return client.SendMsg(&answer)
}

// stream passes a StreamingPull on, both ways.
func (f *pubsubFront) stream(ctx context.Context, client grpc.ServerStream, c *pubsubCall, concerns func(string) bool) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server, err := f.behind.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, c.full)
	if err != nil {
		return err
	}
	if err := server.SendMsg(&c.request); err != nil {
		return err
	}
	f.wg.Go(func() { // ends with the client's call
		for {
			var m []byte
			err := client.RecvMsg(&m)
			if err == nil {
				err = server.SendMsg(&m)
			}
			if err != nil {
				_ = server.CloseSend()
				return
			}
		}
	})
	for {
		var m []byte
		if err := server.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if f.faults.Armed() != nil && handsOut(new(pb.StreamingPullResponse), m) {
			if i := f.faults.StrikeHandout(c.method, concerns); i != nil {
				i.Answered(true)
				if i.Fault().Cut {
					f.cut(ctx)
				}
				continue
			}
		}
		if err := client.SendMsg(&m); err != nil {
			return err
		}
	}
}

// hold leaves the client without an answer until it gives up, or without its
// connection.
func (f *pubsubFront) hold(ctx context.Context, cut bool) error {
	if cut {
		f.cut(ctx)
	}
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-f.ctx.Done():
		return status.Error(codes.Unavailable, "the server ends")
	}
}

// cut closes the connection that a call came on.
func (f *pubsubFront) cut(ctx context.Context) {
	if p, ok := peer.FromContext(ctx); ok {
		f.disconnectClient(p.Addr)
	}
}

// concerns says whether a request names a topic or subscription by its ID or its
// full name, or a subscription of that topic.
func (f *pubsubFront) concerns(c *pubsubCall, name string) bool {
	m := c.decode()
	if m == nil {
		return false
	}
	is := func(s string) bool { return s == name || s[strings.LastIndexByte(s, '/')+1:] == name }
	return namesInProto(m.ProtoReflect(), func(s string) bool {
		if is(s) {
			return true
		}
		topic, ok := f.topics.Load(s)
		return ok && is(topic.(string))
	})
}

// decode returns the request's first message; nil where its type isn't known.
func (c *pubsubCall) decode() proto.Message {
	service, method, ok := strings.Cut(strings.TrimPrefix(c.full, "/"), "/")
	if !ok {
		return nil
	}
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil
	}
	s, ok := d.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil
	}
	md := s.Methods().ByName(protoreflect.Name(method))
	if md == nil {
		return nil
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(md.Input().FullName())
	if err != nil {
		return nil
	}
	m := t.New().Interface()
	if proto.Unmarshal(c.request, m) != nil {
		return nil
	}
	return m
}

// namesInProto asks for each string of a message and of the single messages in it.
func namesInProto(m protoreflect.Message, is func(string) bool) bool {
	found := false
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case d.IsList() || d.IsMap():
		case d.Kind() == protoreflect.StringKind:
			found = is(v.String())
		case d.Kind() == protoreflect.MessageKind:
			found = namesInProto(v.Message(), is)
		}
		return !found
	})
	return found
}

// handsOut says whether an answer carries messages.
func handsOut(m proto.Message, answer []byte) bool {
	if proto.Unmarshal(answer, m) != nil {
		return false
	}
	r, ok := m.(interface{ GetReceivedMessages() []*pb.ReceivedMessage })
	return ok && len(r.GetReceivedMessages()) > 0
}

// pubsubOps says which class a method belongs to, as in package localstack/pubsub.
func pubsubOps(method string) fault.Ops {
	switch method {
	case "Publish":
		return Publish.Ops()
	case "Pull", "StreamingPull":
		return Receive.Ops()
	case "Acknowledge", "ModifyAckDeadline":
		return Settle.Ops()
	}
	return Admin.Ops()
}

func checkPubSubAPI(api string) error {
	for _, services := range []protoreflect.ServiceDescriptors{pb.File_google_pubsub_v1_pubsub_proto.Services(), pb.File_google_pubsub_v1_schema_proto.Services()} {
		for i := range services.Len() {
			if services.Get(i).Methods().ByName(protoreflect.Name(api)) != nil {
				return nil
			}
		}
	}
	return fmt.Errorf("localstack: fault: Pub/Sub has no method %q", api)
}
