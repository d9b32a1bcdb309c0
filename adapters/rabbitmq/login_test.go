package rabbitmq

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack/rabbitmq/stream"
)

// A wrong password is refused by the first node that is asked, in the broker's own
// words, and not shown to the others: without the announcement (RMQ-F-120) a real
// node says nothing, and each takes three seconds for that.
func TestWrongPassword(t *testing.T) {
	queues := emulate(t)
	_, url := streamServer(t, stream.Authenticate(func(_, password string) bool { return password != "s3cret" }))
	_, streams, _ := strings.Cut(url, "stream-port=")
	for raw, node := range map[string]string{
		"rabbitmq://guest:s3cret@down,up,another/?insecure-credentials=true":                               "up:5672",
		"rabbitmq://guest:s3cret@up,another/?insecure-credentials=true":                                    "up:5672",
		"rabbitmq://guest:s3cret@down,up,another/?queue=stream&stream-port=5552&insecure-credentials=true": "up:5552",
		"rabbitmq://guest:s3cret@another,up,down/?queue=stream&stream-port=5552&insecure-credentials=true": "another:5552",
	} {
		var asked []string
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			host, port, _ := net.SplitHostPort(address)
			to := queues.addr
			if port == "5552" {
				to = "127.0.0.1:" + streams
			}
			if host == "down" {
				return nil, errors.New("down")
			}
			asked = append(asked, address)
			return new(net.Dialer).DialContext(ctx, network, to)
		}
		_, err := Dial(t.Context(), raw, quiet(), Dialer(dial))
		if !errors.Is(err, broker.ErrUnauthorized) || errors.Is(err, broker.ErrUnavailable) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", raw, err)
		}
		var reply *amqp.Error
		if !strings.Contains(raw, "stream") && (!errors.As(err, &reply) || !reply.Server || !strings.Contains(reply.Reason, "Login was refused")) {
			t.Errorf("%s: not in the node's own words: %v", raw, err)
		}
		if want := []string{node}; !slices.Equal(asked, want) {
			t.Errorf("%s: asked %v, want %v", raw, asked, want)
		}
	}
}

// A node that hangs up in the middle of the login is one that is gone, not one that
// refuses: another node is asked, and alone it is unavailable.
func TestHungUpDuringLogin(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 10)
	served := make(chan struct{})
	good := emulate(t)
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			asked <- struct{}{}
			dieAfterStart(c, good.addr)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-served })
	if _, err := Dial(t.Context(), "rabbitmq://"+l.Addr().String()+"/", quiet()); !errors.Is(err, broker.ErrUnavailable) || errors.Is(err, broker.ErrUnauthorized) {
		t.Errorf("alone: %v", err)
	}
	if len(asked) == 0 {
		t.Error("the node wasn't asked")
	}
	dialURL(t, "rabbitmq://"+l.Addr().String()+","+good.addr+"/")
}

// dieAfterStart passes a good node's greeting on to c, reads the beginning of the
// login and hangs up.
func dieAfterStart(c net.Conn, node string) {
	defer func() { _ = c.Close() }()
	n, err := net.Dial("tcp", node)
	if err != nil {
		return
	}
	defer func() { _ = n.Close() }()
	for _, x := range []net.Conn{c, n} {
		_ = x.SetDeadline(time.Now().Add(mustCome))
	}
	if _, err := io.CopyN(n, c, 8); err != nil { // "AMQP" and the version
		return
	}
	head := make([]byte, frameHead)
	if _, err := io.ReadFull(n, head); err != nil {
		return
	}
	_, _ = c.Write(head)
	_, _ = io.CopyN(c, n, int64(head[5])<<8+int64(head[6])+1)
	_, _ = io.ReadFull(c, head)
}

// What isn't a whole start-ok passes as it is, whatever its lengths say.
func FuzzAnnounce(f *testing.F) {
	c, err := net.Dial("tcp", emulate(f).addr)
	if err != nil {
		f.Fatal(err)
	}
	w := &writes{Conn: c}
	sdk, err := amqp.Open(w, amqp.Config{Vhost: "/", SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "guest", Password: "guest"}}})
	if err != nil {
		f.Fatal(err)
	}
	_ = sdk.Close()
	login := w.all[1] // behind the protocol header
	if longer := announce(login); len(longer) != len(login)+31 || announce(longer) != nil {
		f.Fatalf("%q became %q", login, longer)
	}
	f.Add(login)
	for i := range len(login) {
		f.Add(login[:i])
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if longer := announce(p); longer != nil && len(longer) != len(p)+31 {
			t.Errorf("%q became %q", p, longer)
		}
	})
}

// writes keeps what is written.
type writes struct {
	net.Conn
	all [][]byte
}

func (w *writes) Write(p []byte) (int, error) {
	w.all = append(w.all, bytes.Clone(p))
	return w.Conn.Write(p)
}
