package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// longIDs are as long as the fields of the brokers plus one, and as the contract
// admits, the latter also of characters that take more room in most encodings; the
// pairs differ in the last byte alone.
func longIDs() []string {
	long := strings.Repeat("0123456789abcdef", broker.MaxID/16)
	wide := strings.Repeat("é ", broker.MaxID/3) + "!"
	return []string{long[:129], long[:256], long[:broker.MaxID], long[:broker.MaxID-1] + "!", wide, wide[:len(wide)-1] + "?"}
}

// awkwardIDs are what somebody on the way might trim, fold, escape, unescape or
// read a meaning into. Some differ from each other only by that.
func awkwardIDs() []string {
	return []string{
		"a b", "a%20b", "a+b", "a  b", " a b", "a b ", "A B",
		"tab\tin it", "line\nend", "line\r\nend", "control \x01\x1b\x7f",
		`quotes "'` + "`", `slashes \/|`, "<&lt;>", "brackets ()[]{}", "punctuation !#$%^&*-_=;:,.?~@",
		"\u00e9", "e\u0301", "消息 🚀", "not UTF-8 \xff\xfe", "not UTF-8 \ufffd\ufffd",
		"onceline-sha256-0", "$JS.ACK.a", "null", "0", "00",
	}
}

// lookalikes are the names under which brokers, their plugins and their SDKs keep
// a message's dedup ID, and one by which a publish is made to depend on it.
var lookalikes = []string{"MessageDeduplicationId", "MessageId", "Nats-Expected-Last-Msg-Id", "Nats-Msg-Id",
	"deduplicationId", "message-id", "nats-msg-id", "x-deduplication-header", "x-message-deduplication"}

// arrival is what came of one message.
type arrival struct {
	copies  int
	id      string         // the last copy's that isn't the one sent, if any
	headers broker.Headers // the last copy's
}

// probeIDs. Anomaly: an ID is cut, trimmed or escaped on the way, so that two
// messages pass for one, or a dedup store at the end sees another ID; or a header
// of the user's is taken for the ID. Experiment: publish IDs of many lengths and
// characters, all twice, each with a body that tells it from the others; then
// messages whose headers have the names of the vendors' dedup fields and the ID of
// another message as value, or all the same value.
func probeIDs(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	var ms []broker.Message
	refused := make(map[int]error)
	send := func(add []broker.Message, times int) (from, to int) {
		from = len(ms)
		ms = append(ms, add...)
		for i := range add {
			ms[from+i].Body = fmt.Appendf(nil, "message %d", from+i)
		}
		for range times {
			for i, r := range b.Publish(ctx, e.pub, ms[from:]...) {
				if !r.Verdict.OK() {
					refused[from+i] = fmt.Errorf("%s: %w", r.Verdict, r.Err)
				}
			}
		}
		return from, len(ms)
	}
	named := func(ids []string) []broker.Message {
		named := b.Messages(len(ids))
		for i := range ids {
			named[i].ID = ids[i]
		}
		return named
	}
	long0, long1 := send(named(longIDs()), 2)
	odd0, odd1 := send(named(awkwardIDs()), 2)
	look := b.Messages(4)
	for i, value := range []string{"", look[0].ID, "the same", "the same"} {
		if value != "" {
			look[i].Headers = lookalike(value)
		}
	}
	look0, look1 := send(look, 1)

	came := make([]arrival, len(ms))
	err = b.drain(ctx, e.pub, e.rcv, func(d *broker.Delivery) {
		i := slices.IndexFunc(ms, func(m broker.Message) bool { return string(m.Body) == string(d.Body) })
		if i < 0 {
			return
		}
		came[i].copies++
		came[i].headers = slices.Clone(d.Headers)
		if d.ID != ms[i].ID {
			came[i].id = d.ID
		}
	}, func() bool {
		return !slices.ContainsFunc(came, func(a arrival) bool { return a.copies == 0 })
	})
	if err != nil {
		return err
	}
	b.answerIDs(boundary.PublishIDLength, ms, came, refused, long0, long1)
	b.answerIDs(boundary.PublishIDCharset, ms, came, refused, odd0, odd1)
	b.answerLookalike(ms, came, refused, look0, look1)
	return nil
}

func lookalike(value string) broker.Headers {
	hs := make(broker.Headers, len(lookalikes))
	for i, name := range lookalikes {
		hs[i] = broker.Header{Key: name, Value: value}
	}
	return hs
}

// brief is an ID as it is shown in a sentence.
func brief(id string) string {
	if len(id) > 40 {
		return fmt.Sprintf("%q… of %d bytes", id[:32], len(id))
	}
	return fmt.Sprintf("%q", id)
}

// answerIDs answers for the messages from one to before another, by the worst that
// befell one of them.
func (b *Bench) answerIDs(claim boundary.Claim, ms []broker.Message, came []arrival, refused map[int]error, from, to int) {
	c, _ := Lookup(claim)
	worst := len(c.Answers)
	note := func(a boundary.Answer, format string, args ...any) {
		if c.rank(a) < worst {
			worst = c.rank(a)
			b.Answer(claim, a, format, args...)
		}
	}
	for i := from; i < to; i++ {
		switch err, no := refused[i]; {
		case no:
			note(boundary.Refused, "the ID %s: %v", brief(ms[i].ID), err)
		case came[i].copies == 0:
			note(boundary.TakenForAnother, "the message with the ID %s has a good receipt and isn't there", brief(ms[i].ID))
		case came[i].id != "":
			note(boundary.Mangled, "the ID %s is delivered as %s", brief(ms[i].ID), brief(came[i].id))
		case came[i].copies > 1:
			note(boundary.KeptNotDeduped, "all %d IDs are whole; sent again, %s is stored %s", to-from, brief(ms[i].ID), often(came[i].copies))
		default:
			note(boundary.KeptAndDeduped, "all %d IDs are whole, and each is stored once though it was sent twice", to-from)
		}
	}
}

// answerLookalike is the same for the messages with a lookalike header.
func (b *Bench) answerLookalike(ms []broker.Message, came []arrival, refused map[int]error, from, to int) {
	const id = boundary.PublishDedupLookalikeHeader
	for i := from; i < to; i++ {
		switch err, no := refused[i]; {
		case no:
			b.Answer(id, boundary.Refused, "a message with headers named %q is refused: %v", lookalikes, err)
		case came[i].copies == 0:
			b.Answer(id, boundary.TakenForID, "%q, whose header says %q, has a good receipt and isn't there", ms[i].ID, firstValue(ms[i].Headers))
		case came[i].id != "":
			b.Answer(id, boundary.TakenForID, "%q, whose header says %q, is delivered as %q", ms[i].ID, firstValue(ms[i].Headers), came[i].id)
		case !slices.Equal(came[i].headers, ms[i].Headers):
			b.Answer(id, boundary.HeaderLost, "%q was sent with %q and came with %q", ms[i].ID, ms[i].Headers, came[i].headers)
		default:
			continue
		}
		return
	}
	b.Answer(id, boundary.Kept, "headers named %q are delivered as they were, and nothing was taken for the ID", lookalikes)
}

func firstValue(hs broker.Headers) string {
	if len(hs) == 0 {
		return ""
	}
	return hs[0].Value
}
