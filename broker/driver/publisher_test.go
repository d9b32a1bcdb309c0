package driver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

func TestPublishRefusesInvalidMessages(t *testing.T) {
	long := strings.Repeat("x", broker.MaxID+1)
	headers := func(kv ...string) (hs broker.Headers) {
		for i := 0; i < len(kv); i += 2 {
			hs = append(hs, broker.Header{Key: kv[i], Value: kv[i+1]})
		}
		return hs
	}
	tests := []struct {
		name string
		m    broker.Message
		kind error // nil: valid
		says string
	}{
		{"no ID", broker.Message{}, broker.ErrInvalid, "publish to topic: the message has no ID; an adapter never invents one: invalid"},
		{"a long ID", broker.Message{ID: long}, broker.ErrInvalid, "publish to topic: the ID has 1025 bytes, over 1024: invalid"},
		{"a NUL in the ID", broker.Message{ID: "a\x00b"}, broker.ErrInvalid, `publish "a\x00b" to topic: the ID holds a NUL: invalid`},
		{"a long copy", broker.Message{ID: "a", Copy: long}, broker.ErrInvalid, `publish "a" to topic: Copy is over 1024 bytes or holds a NUL: invalid`},
		{"a NUL in the copy", broker.Message{ID: "a", Copy: "\x00"}, broker.ErrInvalid, `publish "a" to topic: Copy is over 1024 bytes or holds a NUL: invalid`},
		{"a long key", broker.Message{ID: "a", Key: long}, broker.ErrInvalid, `publish "a" to topic: Key is over 1024 bytes or holds a NUL: invalid`},
		{"a NUL in the key", broker.Message{ID: "a", Key: "k\x00"}, broker.ErrInvalid, `publish "a" to topic: Key is over 1024 bytes or holds a NUL: invalid`},
		{"a large body", broker.Message{ID: "a", Body: make([]byte, 11)}, broker.ErrTooLarge, `publish "a" to topic: the body has 11 bytes, over 10: too large`},
		{"a header without a name", broker.Message{ID: "a", Headers: headers("ok", "", "", "v")}, broker.ErrInvalid, `publish "a" to topic: header 1 has no name: invalid`},
		{"a reserved header", broker.Message{ID: "a", Headers: headers("OnceLine-Id", "")}, broker.ErrInvalid, `publish "a" to topic: header "OnceLine-Id" is reserved: invalid`},
		{"the bare prefix", broker.Message{ID: "a", Headers: headers("onceline-", "")}, broker.ErrInvalid, `publish "a" to topic: header "onceline-" is reserved: invalid`},
		{"large headers", broker.Message{ID: "a", Headers: headers("abc", "defg", "h", "ijklm")}, broker.ErrTooLarge, `publish "a" to topic: the headers have 13 bytes, over 12: too large`},

		{"the longest of all", broker.Message{ID: long[1:], Copy: long[1:], Key: long[1:], Body: make([]byte, 10), Headers: headers("abc", "defghijkl")}, nil, ""},
		{"look-alikes of reserved headers", broker.Message{ID: "b", Headers: headers("onceline", "x", "o", "")}, nil, ""},
		{"any bytes", broker.Message{ID: "\xff\n ", Key: "\xfe", Headers: headers("\x00", "\xff")}, nil, ""},
	}
	f := newFake()
	f.limits = broker.Limits{Body: 10, Headers: 12, Window: time.Minute}
	p := f.publisher(t)
	if p.Limits() != f.limits {
		t.Errorf("limits %v", p.Limits())
	}
	var all []broker.Message
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f.took()
			rs, err := p.Publish(t.Context(), tt.m)
			if len(rs) != 1 || rs[0].Err != err {
				t.Fatalf("%v, %v", rs, err)
			}
			if tt.kind == nil {
				if err != nil || rs[0].Verdict != broker.Stored || len(f.took()) != 1 {
					t.Errorf("%v, %v", rs, err)
				}
				return
			}
			if rs[0].Verdict != broker.Refused || !errors.Is(err, tt.kind) || err.Error() != tt.says {
				t.Errorf("%s: %v\nwant %s", rs[0].Verdict, err, tt.says)
			}
			if frames := f.took(); frames != nil {
				t.Errorf("sent %q", frames)
			}
		})
		all = append(all, tt.m)
	}
	// All in one call: the bad ones harm no other, and each has its own receipt.
	f.took()
	rs, err := p.Publish(t.Context(), all...)
	if err != rs[0].Err || len(rs) != len(tests) {
		t.Fatalf("%v", err)
	}
	good := 0
	for i, tt := range tests {
		if tt.kind == nil {
			if rs[i].Verdict != broker.Stored || rs[i].Position.Offset != uint64(good) || all[i].Time.IsZero() {
				t.Errorf("%s: %v", tt.name, rs[i])
			}
			good++
		} else if rs[i].Verdict != broker.Refused || rs[i].Err.Error() != tt.says {
			t.Errorf("%s: %v", tt.name, rs[i])
		}
	}
	if n := len(f.took()); n != good {
		t.Errorf("%d sent, want %d", n, good)
	}
}

func TestPublishStampsTheFirstAttempt(t *testing.T) {
	f := newFake()
	p := f.publisher(t)
	given := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	msgs := []broker.Message{{ID: "a"}, {ID: "b", Time: given}}
	first := f.Now()
	var seen []time.Time
	f.pub = func(_ context.Context, msgs []broker.Message, receipts []broker.Receipt) {
		for i := range msgs {
			seen = append(seen, msgs[i].Time)
			receipts[i].Verdict = broker.Accepted
		}
	}
	for range 2 {
		if _, err := p.Publish(t.Context(), msgs...); err != nil {
			t.Fatal(err)
		}
		f.advance(time.Minute)
	}
	for i, want := range []time.Time{first, given, first, given} {
		if !seen[i].Equal(want) {
			t.Errorf("%d: sent with %s, want %s", i, seen[i], want)
		}
	}
}

// A receipt that an adapter forgot, or gave without a reason, reads as no success.
func TestPublishExplainsEveryReceipt(t *testing.T) {
	f := newFake()
	p := f.publisher(t)
	why := errors.New("why")
	f.pub = func(_ context.Context, _ []broker.Message, receipts []broker.Receipt) {
		receipts[0] = broker.Receipt{Verdict: broker.Duplicate}
		receipts[2] = broker.Receipt{Verdict: broker.Refused}
		receipts[3] = broker.Receipt{Err: why}
	}
	rs, err := p.Publish(t.Context(), broker.Message{ID: "a"}, broker.Message{ID: "b"}, broker.Message{ID: "c"}, broker.Message{ID: "d"})
	if rs[0].Err != nil || !errors.Is(rs[1].Err, broker.ErrUnknownOutcome) || !errors.Is(rs[2].Err, broker.ErrRefused) || rs[3].Err != why || err != rs[1].Err {
		t.Errorf("%v, %v", rs, err)
	}
}

func TestPublishEnds(t *testing.T) {
	f := newFake()
	p := f.publisher(t)
	if rs, err := p.Publish(t.Context()); rs != nil || err != nil {
		t.Errorf("nothing: %v, %v", rs, err)
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	rs, err := p.Publish(ctx, broker.Message{ID: "a"}, broker.Message{})
	if len(rs) != 2 || rs[0].Verdict != broker.Refused || rs[1].Verdict != broker.Refused || !errors.Is(err, broker.ErrUnavailable) || !errors.Is(err, why) {
		t.Errorf("an ended context: %v, %v", rs, err)
	}
	// Close waits for what is in flight, then closes the driver.
	begun, release := make(chan struct{}), make(chan struct{})
	f.pub = func(_ context.Context, _ []broker.Message, receipts []broker.Receipt) {
		close(begun)
		<-release
		receipts[0].Verdict = broker.Stored
		f.note("done")
	}
	published, closed := make(chan error), make(chan error)
	go func() { _, err := p.Publish(context.Background(), broker.Message{ID: "a"}); published <- err }()
	<-begun
	go func() { closed <- p.Close(context.Background()) }()
	for { // until Close has shut the door
		rs, err := p.Publish(ctx, broker.Message{ID: "b"})
		if errors.Is(err, broker.ErrClosed) {
			if rs[0].Verdict != broker.Refused {
				t.Error(rs)
			}
			break
		}
	}
	close(release)
	if err := <-published; err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(f.took()); got != "[publish a done close publisher topic]" {
		t.Errorf("%s", got)
	}
	if err := p.Close(t.Context()); err != nil || f.took() != nil {
		t.Errorf("second Close: %v", err)
	}
	// A Close whose context has ended doesn't wait.
	p = f.publisher(t)
	begun, release = make(chan struct{}), make(chan struct{})
	go func() { _, err := p.Publish(context.Background(), broker.Message{ID: "c"}); published <- err }()
	<-begun
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	close(release)
	<-published
}

func TestPublisherAs(t *testing.T) {
	f := newFake()
	p := f.publisher(t)
	var got *fake
	if !p.As(&got) || got != f || p.As(new(int)) {
		t.Error("As doesn't reach the driver")
	}
	if c, ok := p.(interface{ Now() time.Time }); !ok || !c.Now().Equal(f.Now()) {
		t.Error("the publisher doesn't show its clock")
	}
}

func TestPublishTakesADeadLetterAgain(t *testing.T) {
	p := newFake().publisher(t)
	for key, kind := range map[string]error{
		driver.HeaderReason: nil, driver.HeaderSource: nil, driver.HeaderAttempts: nil,
		driver.HeaderReason + "s": broker.ErrInvalid, "Onceline-Dead-Letter-Reason": broker.ErrInvalid,
	} {
		m := broker.Message{ID: "a", Headers: broker.Headers{{Key: key, Value: "x"}}}
		if _, err := p.Publish(t.Context(), m); !errors.Is(err, kind) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
