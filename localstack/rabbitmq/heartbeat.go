package rabbitmq

import (
	"sync"
	"time"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// heart sends heartbeats when nothing else was sent for half of the interval, and
// cuts the connection when nothing was read for two intervals. It runs by the
// real time.
type heart struct {
	c        *conn
	interval time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	sent    uint32
	read    uint32
	silent  int // half intervals without anything read
}

func (c *conn) startHeart(interval time.Duration) {
	if interval <= 0 {
		return
	}
	h := &heart{c: c, interval: interval, sent: c.sending.Load(), read: c.reading.Load()}
	c.beat = h
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(interval/2, h.beat)
}

func (h *heart) beat() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return
	}
	if read := h.c.reading.Load(); read != h.read {
		h.read, h.silent = read, 0
	} else if h.silent++; h.silent > 4 {
		h.c.abort()
		return
	}
	if sent := h.c.sending.Load(); sent != h.sent {
		h.sent = sent
	} else if h.c.out.add(func(b []byte) []byte {
		return amqp.EndFrame(amqp.BeginFrame(b, amqp.FrameHeartbeat, 0), len(b))
	}) {
		h.c.out.wake()
	}
	h.timer.Reset(h.interval / 2)
}

func (h *heart) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	h.timer.Stop()
}
