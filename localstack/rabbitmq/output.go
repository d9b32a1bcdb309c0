package rabbitmq

import (
	"net"
	"sync"
	"time"
)

// Over highWater bytes of output that wait for a connection's writer its
// consumers get no more messages, and its reader takes no more requests: a client
// that doesn't read can't fill the broker's memory.
const highWater = 1 * mib

// lastWords is how long a writer may take for what is left when its connection
// ends. It is real time, as it bounds the peer.
const lastWords = time.Second

// output is what a connection has to say, and the goroutine that says it. The
// broker appends while it has its own lock; the writer takes all that there is
// and writes it at once.
type output struct {
	nc      net.Conn
	drained func() // called without locks when a full output has been written

	mu    sync.Mutex
	room  sync.Cond // signalled when the output isn't full any more or has ended
	buf   []byte
	spare []byte
	full  bool // since the last write
	ended bool // nothing is added any more
	shut  bool // the writer closes the connection when it has ended
	bell  chan struct{}
	done  chan struct{} // closed when the writer has ended
}

func (o *output) init(nc net.Conn, drained func()) {
	o.nc, o.drained = nc, drained
	o.room.L = &o.mu
	o.bell = make(chan struct{}, 1)
	o.done = make(chan struct{})
}

// add appends what f appends. It is false when the connection has ended.
func (o *output) add(f func(b []byte) []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return false
	}
	o.buf = f(o.buf)
	if len(o.buf) > highWater {
		o.full = true
	}
	return true
}

// isFull says that no more messages should be added.
func (o *output) isFull() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.full || o.ended
}

// waitForRoom blocks a reader whose peer doesn't read.
func (o *output) waitForRoom() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.full && !o.ended {
		o.room.Wait()
	}
}

// wake makes the writer look for output.
func (o *output) wake() {
	select {
	case o.bell <- struct{}{}:
	default:
	}
}

// end lets the writer write what there is, and no more.
func (o *output) end() {
	o.mu.Lock()
	if !o.ended {
		o.ended = true
		_ = o.nc.SetWriteDeadline(time.Now().Add(lastWords))
		o.room.Broadcast()
	}
	o.mu.Unlock()
	o.wake()
}

// shutdown is end, and the writer closes the connection then.
func (o *output) shutdown() {
	o.mu.Lock()
	o.shut = true
	o.mu.Unlock()
	o.end()
}

func (o *output) closeIfShut() {
	o.mu.Lock()
	shut := o.shut
	o.mu.Unlock()
	if shut {
		_ = o.nc.Close()
	}
}

// write is the writer's goroutine.
func (o *output) write() {
	defer close(o.done)
	for range o.bell {
		for {
			o.mu.Lock()
			b := o.buf
			o.buf, o.spare = o.spare[:0], nil
			ended := o.ended
			o.mu.Unlock()
			if len(b) == 0 && ended {
				o.closeIfShut()
				return
			}
			if len(b) > 0 {
				if _, err := o.nc.Write(b); err != nil {
					_ = o.nc.Close() // the reader ends, and ends this
					o.end()
					return
				}
			}
			if !o.written(b) {
				break
			}
		}
	}
}

// written gives the written bytes' memory back, and says whether there is more.
func (o *output) written(b []byte) bool {
	o.mu.Lock()
	if cap(b) <= 2*highWater {
		o.spare = b[:0]
	}
	wasFull := o.full
	o.full = len(o.buf) > highWater
	more := len(o.buf) > 0 || o.ended
	if wasFull && !o.full {
		o.room.Broadcast()
	} else {
		wasFull = false
	}
	o.mu.Unlock()
	if wasFull {
		o.drained()
	}
	return more
}
