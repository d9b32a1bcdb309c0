package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// management plays the two requests of RabbitMQ's management interface that the
// tests make, which the emulator doesn't have: which connections there are, and
// the forced end of one. It stands as a listener before the emulator, and reads
// the names that clients give their connections as they log in.
type management struct {
	net.Listener // of AMQP
	http         *http.Server
	api          net.Listener

	mu    sync.Mutex
	conns map[string]*managed
}

func manage(l net.Listener) (*management, error) {
	api, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &management{Listener: l, api: api, conns: map[string]*managed{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/connections/{$}", m.list)
	mux.HandleFunc("DELETE /api/connections/{name}", m.drop)
	m.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = m.http.Serve(api) }()
	return m, nil
}

func (m *management) addr() string { return m.api.Addr().String() }

func (m *management) stop() error { return m.http.Close() }

// Accept makes it a listener for the emulator to serve.
func (m *management) Accept() (net.Conn, error) {
	nc, err := m.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &managed{Conn: nc, m: m, name: nc.RemoteAddr().String() + " -> " + nc.LocalAddr().String()}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns[c.name] = c
	return c, nil
}

func (m *management) list(w http.ResponseWriter, _ *http.Request) {
	type properties struct {
		ConnectionName string `json:"connection_name"`
	}
	type connection struct {
		Name             string     `json:"name"`
		ClientProperties properties `json:"client_properties"`
	}
	list := []connection{}
	m.mu.Lock()
	for name, c := range m.conns {
		if c.client != nil {
			list = append(list, connection{name, properties{*c.client}})
		}
	}
	m.mu.Unlock()
	_ = json.NewEncoder(w).Encode(list)
}

func (m *management) drop(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	c := m.conns[r.PathValue("name")]
	m.mu.Unlock()
	if c == nil {
		http.NotFound(w, r)
		return
	}
	c.drop()
	w.WriteHeader(http.StatusNoContent)
}

// managed is a connection between a client and the emulator.
type managed struct {
	net.Conn
	m      *management
	name   string
	client *string // the client's own name, once it has logged in; m guards it

	head []byte // what was read until then
	told bool   // the name was there, or nothing that looks like it

	writing sync.Mutex
	dropped bool // the emulator's words go nowhere
}

// Read passes on what the client says. Once the connection is dropped, the
// emulator hears nothing any more but its end.
func (c *managed) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.isDropped() {
		_, _ = io.Copy(io.Discard, c.Conn)
		return 0, io.EOF
	}
	if !c.told {
		c.head = append(c.head, b[:n]...)
		c.listen()
	}
	return n, err
}

// mostHead is the length in bytes of what a client may say of itself.
const mostHead = 64 << 10

// listen looks for connection.start-ok, which follows the protocol header.
func (c *managed) listen() {
	if len(c.head) < len(amqp.Protocol) {
		return
	}
	f, n, err := amqp.ParseFrame(c.head[len(amqp.Protocol):], mostHead)
	if n == 0 && err == nil {
		return // not all of it yet
	}
	c.told = true
	d := amqp.NewDecoder(f.Payload)
	if err != nil || amqp.Method(d.Uint32()) != amqp.ConnectionStartOk {
		return
	}
	v, _ := d.Table().Get("connection_name")
	name, _ := v.(string)
	c.head = nil
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.client = &name
}

func (c *managed) isDropped() bool {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.dropped
}

// Write passes on what the emulator says, which are whole frames.
func (c *managed) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.dropped {
		return 0, errors.New("the connection was dropped")
	}
	return c.Conn.Write(b)
}

// drop tells the client that its connection is closed, as the real server does
// when an operator closes it. Where the client doesn't hang up, it is hung up on.
func (c *managed) drop() {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.dropped {
		return
	}
	c.dropped = true
	b := amqp.BeginFrame(nil, amqp.FrameMethod, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(amqp.ConnectionClose))
	b = binary.BigEndian.AppendUint16(b, amqp.ConnectionForced)
	b = amqp.AppendShort(b, "CONNECTION_FORCED - Closed via management plugin")
	b = amqp.EndFrame(append(b, 0, 0, 0, 0), 0)
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	_, _ = c.Conn.Write(b)
}

// Close forgets the connection.
func (c *managed) Close() error {
	c.m.mu.Lock()
	delete(c.m.conns, c.name)
	c.m.mu.Unlock()
	return c.Conn.Close()
}
