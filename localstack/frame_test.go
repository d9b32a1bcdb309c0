package localstack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"

	"github.com/onceline/onceline/localstack/fault"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestParseNATS(t *testing.T) {
	type want struct {
		size                             int
		verb                             natsVerb
		subject, reply, sid, head, bytes string
	}
	for in, w := range map[string]want{
		"PING\r\nPONG\r\n":    {size: 6},
		"INFO {\"a\":1}\r\n":  {size: 14},
		"+OK\r\n":             {size: 5},
		"-ERR 'x'\r\n":        {size: 10},
		"PUB a 2\r\nhi\r\n":   {size: 13, verb: natsPub, subject: "a", bytes: "hi"},
		"pub\ta  r 0\r\n\r\n": {size: 14, verb: natsPub, subject: "a", reply: "r"},
		"HPUB a r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n":      {size: 32, verb: natsHPub, subject: "a", reply: "r", head: "NATS/1.0\r\n\r\n", bytes: "hi"},
		"MSG a 7 2\r\nhi\r\n":                           {size: 15, verb: natsMsg, subject: "a", sid: "7", bytes: "hi"},
		"MSG a 7 r 2\r\nhi\r\nMSG":                      {size: 17, verb: natsMsg, subject: "a", sid: "7", reply: "r", bytes: "hi"},
		"HMSG a 7 r 12 12\r\nNATS/1.0\r\n\r\n\r\n":      {size: 32, verb: natsHMsg, subject: "a", sid: "7", reply: "r", head: "NATS/1.0\r\n\r\n"},
		"SUB a q 7\r\n":                                 {size: 11, verb: natsSub, subject: "a", sid: "7"},
		"UNSUB 7 1\r\n":                                 {size: 11, verb: natsUnsub, sid: "7"},
		"PUB a 3\r\nhi\r":                               {size: 0, verb: natsPub, subject: "a"},
		"PUB a":                                         {size: 0},
		"PUB a x\r\n":                                   {size: -1, verb: natsPub, subject: "a"},
		"PUB a b c 3\r\n":                               {size: -1, verb: natsPub},
		"PUB 3\r\n":                                     {size: -1, verb: natsPub},
		"HPUB a 9 3\r\n":                                {size: -1, verb: natsHPub, subject: "a"},
		"PUB a 9999999999\r\n":                          {size: -1, verb: natsPub, subject: "a"},
		strings.Repeat("x", natsMaxLine+1):              {size: -1},
		"CONNECT " + strings.Repeat("x", 5000) + "\r\n": {size: 5010},
	} {
		var f natsFrame
		size := parseNATS([]byte(in), &f)
		got := want{size, f.verb, string(f.subject), string(f.reply), string(f.sid), string(f.header), string(f.payload)}
		if got != w {
			t.Errorf("%.40q: %+v, want %+v", in, got, w)
		}
	}
}

func FuzzParseNATS(f *testing.F) {
	f.Add([]byte("PUB a r 2\r\nhi\r\nMSG a 7 r 2\r\nhi\r\n"))
	f.Add([]byte("HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var frame natsFrame
		size := parseNATS(b, &frame)
		if size > len(b) || size < -1 {
			t.Fatalf("size %d of %d bytes", size, len(b))
		}
		if size > 0 { // a frame does not depend on what follows it, nor is it found in less
			var again natsFrame
			if parseNATS(b[:size], &again) != size || !reflect.DeepEqual(frame, again) {
				t.Fatal("the frame depends on what follows")
			}
			if n := parseNATS(b[:size-1], &again); n > 0 && n != size-1 {
				t.Fatalf("%d bytes are a frame, and %d", size, n)
			}
		}
	})
}

func TestSubjectMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, subject string
		want             bool
	}{
		{"a.b", "a.b", true}, {"a.b", "a.c", false}, {"a.*", "a.b", true}, {"a.*", "a.b.c", false},
		{"a.>", "a.b.c", true}, {"a.>", "a", false}, {">", "a.b", true}, {"*.b", "a.b", true}, {"a.b.c", "a.b", false},
	} {
		if got := subjectMatches(c.pattern, []byte(c.subject)); got != c.want {
			t.Errorf("%s matches %s: %v", c.pattern, c.subject, got)
		}
	}
}

// frameOf encodes a request as a client does.
func frameOf(req kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("me")).AppendRequest(nil, req, 7)
}

func TestKafkaRequest(t *testing.T) {
	for key := range int16(kmsg.MaxKey + 1) {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		for v := range req.MaxVersion() + 1 {
			if req.SetVersion(v); key == 7 && v == 0 {
				continue // ControlledShutdown v0 alone has no client ID; it is for brokers
			}
			frame := frameOf(req)
			if n := kafkaFrameSize(frame, kafkaHeader); n != len(frame) {
				t.Fatalf("%s v%d: size %d of %d", kmsg.NameForKey(key), v, n, len(frame))
			}
			r := parseKafkaRequest(frame)
			if r.key != key || r.version != v || r.corr != 7 || r.decode() == nil {
				t.Fatalf("%s v%d: %+v", kmsg.NameForKey(key), v, r)
			}
			// Whatever is refused must decode again, and carry the error if the
			// response can carry one at all.
			answer := kafkaError(r.decode(), 7, 29, []string{"127.0.0.1:1"})
			if decodeKafkaResponse(answer, key, v) == nil {
				t.Errorf("%s v%d: the refusal does not decode", kmsg.NameForKey(key), v)
			}
		}
	}
}

func TestKafkaProduceAcks(t *testing.T) {
	id := "tx"
	for v := int16(0); v <= 12; v++ {
		for _, acks := range []int16{0, 1, -1} {
			for _, tx := range []*string{nil, &id} {
				req := kmsg.NewPtrProduceRequest()
				req.Version, req.Acks, req.TransactionID = v, acks, tx
				r := parseKafkaRequest(frameOf(req))
				if r.answered() != (acks != 0) {
					t.Errorf("v%d acks %d: answered %v", v, acks, r.answered())
				}
			}
		}
	}
}

func noTopic([16]byte) string { return "" }

func TestKafkaErrorMirrors(t *testing.T) {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 11, -1
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "t"
	for n := range int32(2) {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition = n
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	if !names(req, "t", noTopic) || names(req, "u", noTopic) {
		t.Error("names")
	}
	frame := kafkaError(req, 7, 29, nil)
	resp, ok := decodeKafkaResponse(frame, keyProduce, 11).(*kmsg.ProduceResponse)
	if !ok || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 2 || !refused(resp) {
		t.Fatalf("%+v", resp)
	}
	for n, p := range resp.Topics[0].Partitions {
		if p.Partition != int32(n) || p.ErrorCode != 29 {
			t.Errorf("partition %d: %+v", n, p)
		}
	}
}

func FuzzKafkaFrames(f *testing.F) {
	req := kmsg.NewPtrProduceRequest()
	req.Version = 11
	f.Add(frameOf(req))
	f.Add([]byte{0, 0, 0, 10, 0, 78, 0, 1, 0, 0, 0, 7, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		size := kafkaFrameSize(b, kafkaHeader)
		if size <= 0 {
			return
		}
		r := parseKafkaRequest(b[:size])
		r.answered()
		r.ops()
		if req := r.decode(); req != nil {
			names(req, "x", noTopic)
		}
		if resp := decodeKafkaResponse(b[:size], r.key, r.version); resp != nil {
			refused(resp)
			carriesRecords(resp)
		}
	})
}

// TestPumpPasses proves that a link with no fault armed costs no allocation
// per frame, and keeps frames whole however they are cut up on their way.
func TestPumpPasses(t *testing.T) {
	chunk := bytes.Repeat([]byte("PUB s.a _INBOX.x.y 5\r\nhello\r\n"), 1000)
	n := &natsLink{faults: new(fault.Set), trace: new(tracer), subs: map[string]string{}}
	step := natsStep(n.request)
	if allocs := testing.AllocsPerRun(10, func() {
		for b := chunk; len(b) > 0; {
			size, what := step(b)
			if size <= 0 || what != forward {
				t.Fatal(size, what)
			}
			b = b[size:]
		}
	}); allocs > 0 {
		t.Errorf("%v allocations per 1000 frames", allocs)
	}

	in, out := &scriptedConn{in: chunk, step: 7}, new(scriptedConn)
	l := &link{gate: new(gate), done: make(chan struct{})}
	pump(in, &door{link: l, conn: out}, step)
	if !bytes.Equal(out.out.Bytes(), chunk) {
		t.Errorf("%d bytes have become %d", len(chunk), out.out.Len())
	}
}

// scriptedConn reads a script in small steps and keeps what is written.
type scriptedConn struct {
	net.Conn
	in   []byte
	step int
	out  bytes.Buffer
}

func (c *scriptedConn) Read(p []byte) (int, error) {
	if len(c.in) == 0 {
		return 0, errors.New("end of script")
	}
	n := copy(p, c.in[:min(c.step, len(c.in))])
	c.in = c.in[n:]
	return n, nil
}

func (c *scriptedConn) Write(p []byte) (int, error) { return c.out.Write(p) }

func TestKafkaPumpAllocates(t *testing.T) {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 11, -1
	request := frameOf(req)
	response := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 4}, 7)
	l := &link{gate: new(gate), done: make(chan struct{})}
	k := &kafkaLink{link: l, kafkaFront: &kafkaFront{faults: new(fault.Set), trace: new(tracer)}}
	k.toClient = door{link: l, conn: discardConn{}}
	if allocs := testing.AllocsPerRun(1000, func() {
		k.request(request)
		k.response(response)
	}); allocs > 0 {
		t.Errorf("%v allocations per request and response", allocs)
	}
}

type discardConn struct{ net.Conn }

func (discardConn) Write(p []byte) (int, error) { return len(p), nil }
