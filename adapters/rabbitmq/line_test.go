package rabbitmq

import (
	"context"
	"testing"
	"time"
)

// A connection that is there as Close has already looked for it is ended, and Close
// doesn't wait for it.
func TestLineClosesWhatComesLate(t *testing.T) {
	c := connOf(t, emulate(t).dial(t))
	l := newLine(&c.settings, "late")
	s, err := l.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	late := make(chan struct{})
	l.tasks.Go(func() {
		<-late
		l.run(s)
	})
	closed := make(chan error, 1)
	go func() { closed <- l.close(t.Context()) }()
	<-l.life.Done() // close has begun, and sees no session now or later
	close(late)
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(mustCome):
		t.Fatal("Close still waits for it")
	}
	if !s.conn.IsClosed() || l.up() {
		t.Error("the connection lives on")
	}
	if _, err := l.session(context.Background()); err == nil {
		t.Error("a closed line gave a session")
	}
}

// A connection that Close has seen is Close's to end, by the protocol.
func TestLineLeavesToCloseWhatItSees(t *testing.T) {
	c := connOf(t, emulate(t).dial(t))
	l := newLine(&c.settings, "early")
	s, err := l.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.set(s, nil)
	l.end() // as close begins
	if l.adopt(s) || s.conn.IsClosed() {
		t.Error("it was taken away from close")
	}
	if err := l.close(t.Context()); err != nil || !s.conn.IsClosed() {
		t.Errorf("%v, closed %v", err, s.conn.IsClosed())
	}
}
