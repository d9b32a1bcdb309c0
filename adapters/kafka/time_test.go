package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

func TestTimeSurvives(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	timeSurvives(t, dial(t, c), false) // the fake overwrites no timestamp
}

func TestRealTimeSurvives(t *testing.T) { timeSurvives(t, realConn(t), true) }

// timeSurvives publishes a time to a topic of each kind: it comes back, and takes a
// header only where the record's own timestamp wouldn't keep it.
func timeSurvives(t *testing.T, conn broker.Conn, overwrites bool) {
	var cl *kgo.Client
	conn.As(&cl)
	adm := kadm.NewClient(cl)
	for _, stamps := range []string{"CreateTime", "LogAppendTime"} {
		topic := fmt.Sprintf("%s-%d", stamps, time.Now().UnixNano())
		if _, err := adm.CreateTopic(ctxOf(t, 10*time.Second), 1, 1, map[string]*string{cfgTimestamps: &stamps}, topic); err != nil {
			t.Fatal(err)
		}
		// The controller has made it; Ensure waits until the brokers have heard (KAF-F-56).
		if err := conn.Ensure(ctxOf(t, 10*time.Second), broker.Entity{Topic: topic}); err != nil {
			t.Fatal(err)
		}
		appends := stamps == "LogAppendTime"
		at := time.UnixMilli(1234567890123)
		publish(t, openPublisher(t, conn, topic), broker.Message{ID: "a", Time: at})
		d := receive(t, openReceiver(t, conn, topic+"/"+topic), 1)[0]
		if !d.Time.Equal(at) {
			t.Errorf("%s: the time %v became %v", stamps, at, d.Time)
		}
		var rec *kgo.Record
		if !d.As(&rec) {
			t.Fatal("no record")
		}
		if got := hasHeader(rec, driver.HeaderTime); got != appends {
			t.Errorf("%s: has a header for the time: %v", stamps, got)
		}
		if kept := rec.Timestamp.Equal(at); kept == (appends && overwrites) {
			t.Errorf("%s: the record's own timestamp is %v", stamps, rec.Timestamp)
		}
		if _, err := adm.DeleteTopic(ctxOf(t, 10*time.Second), topic); err != nil {
			t.Error(err)
		}
	}
}

// A time that Kafka has no timestamp for goes into the header everywhere, as all do
// where nobody can say what the topic does to timestamps.
func TestTimeHeader(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		at    time.Time
		stamp bool
		want  bool
	}{
		"usual":       {time.UnixMilli(1), false, false},
		"before 1970": {time.UnixMilli(-1), false, true},
		"stamped":     {time.UnixMilli(1), true, true},
	} {
		m := broker.Message{ID: "a", Time: c.at}
		hs, _ := headersOf(nil, make([]byte, 0, sizeOf(&m, false)), &m, c.stamp)
		rec := &kgo.Record{Headers: hs, Timestamp: time.UnixMilli(7)}
		if got := hasHeader(rec, driver.HeaderTime); got != c.want {
			t.Errorf("%s: header %v", name, got)
		}
		var back broker.Message
		decode(&back, rec, nil, 1)
		if c.want && !back.Time.Equal(c.at) || !c.want && !back.Time.Equal(rec.Timestamp) {
			t.Errorf("%s: read back as %v", name, back.Time)
		}
	}
}

func hasHeader(r *kgo.Record, key string) bool { return !first(r.Headers, key) }

// Strings that were cut from a chunk stay what they are when others follow.
func TestTextKeepsStrings(t *testing.T) {
	var chunk text
	var want, got []string
	for i := range 3000 {
		b := make([]byte, i%97)
		for j := range b {
			b[j] = byte(i + j)
		}
		want, got = append(want, string(b)), append(got, chunk.of(b, 3000-i))
	}
	big := make([]byte, 3*chunkSize)
	want, got = append(want, string(big)), append(got, chunk.of(big, 1))
	for i := range want {
		if want[i] != got[i] {
			t.Fatalf("string %d of %d bytes changed", i, len(want[i]))
		}
	}
	id := make([]byte, 20)
	if n := testing.AllocsPerRun(10, func() {
		var chunk text
		for i := range 100 {
			chunk.of(id, 100-i)
		}
	}); n > 2 {
		t.Errorf("%v allocations for 100 strings", n)
	}
}

// What a poll took over and nobody was given is neither lost nor delivered: the
// next receiver has it, counted as its first delivery.
func TestPolledAheadIsNotDelivered(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(50, 0)...)
	r := openReceiver(t, conn, "t/g")
	ds := receive(t, r, 10)
	for i := range ds {
		if o, err := ds[i].Ack(ctxOf(t, 5*time.Second)); err != nil || o.State != broker.Confirmed {
			t.Fatalf("ack: %+v (%v)", o, err)
		}
	}
	if err := r.Close(ctxOf(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	next := receive(t, openReceiver(t, conn, "t/g"), 40)
	for i, d := range next {
		if d.Position.Offset != uint64(10+i) || d.Attempt.Number != 1 {
			t.Fatalf("delivery %d: offset %d, attempt %d", i, d.Position.Offset, d.Attempt.Number)
		}
	}
}
