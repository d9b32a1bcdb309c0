package sqs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func setAttr(m *sdk.SendMessageInput, name, kind string, s *string, b []byte) {
	if m.MessageAttributes == nil {
		m.MessageAttributes = map[string]types.MessageAttributeValue{}
	}
	m.MessageAttributes[name] = types.MessageAttributeValue{DataType: &kind, StringValue: s, BinaryValue: b}
}

func typed(name, kind, value string) func(*sdk.SendMessageInput) {
	return func(m *sdk.SendMessageInput) {
		if strings.HasPrefix(kind, "Binary") {
			setAttr(m, name, kind, nil, []byte(value))
		} else {
			setAttr(m, name, kind, &value, nil)
		}
	}
}

func only(names ...string) func(*sdk.ReceiveMessageInput) {
	return func(in *sdk.ReceiveMessageInput) {
		in.MessageAttributeNames, in.MessageSystemAttributeNames = names, nil
	}
}

// SQS-F-61, SQS-F-64: the checksums were recorded from the service.
func TestAttributes(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q", "VisibilityTimeout", "0")
		sent := w.send(url, "msg", attr("Help.Me", "Me"), attr("Hello", "There"), attr("General", "Kenobi"))
		w.want("checksum", *sent.MD5OfMessageAttributes, "4c360f3fdafd970e05fae2f149d997f5")
		const all = "4c360f3fdafd970e05fae2f149d997f5"
		for _, c := range []struct {
			ask  []string
			n    int
			want string
		}{
			{nil, 0, ""}, {[]string{"All"}, 3, all}, {[]string{".*"}, 3, all}, {[]string{"*"}, 3, all},
			{[]string{"Hello", "General"}, 2, "fca026605781cb4126a1e9044df24232"},
			{[]string{"Foo", "Hello"}, 1, "a311262e065454b75da111d535b8dacd"},
			{[]string{"Foo", "Help"}, 0, ""}, {[]string{"Hel.*"}, 2, "*"},
		} {
			m := w.receive(url, 1, only(c.ask...))[0]
			if len(m.MessageAttributes) != c.n || aws.ToString(m.MD5OfMessageAttributes) != c.want && c.want != "*" {
				t.Errorf("%v: %v %s", c.ask, m.MessageAttributes, aws.ToString(m.MD5OfMessageAttributes))
			}
			w.want("no system attributes", len(m.Attributes), 0)
		}

		const root = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
		traced := w.queue("traced")
		out := w.send(traced, "test", typed("timestamp", "Number", "1493147359900"), func(m *sdk.SendMessageInput) {
			m.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{"AWSTraceHeader": {DataType: aws.String("String"), StringValue: aws.String(root)}}
		})
		w.want("checksum of system attributes", *out.MD5OfMessageSystemAttributes, "5ae4d5d7636402d80f4eb6d213245a88")
		m := w.receive(traced, 1)[0]
		w.want("trace", m.Attributes["AWSTraceHeader"], root)
		w.want("number", *m.MessageAttributes["timestamp"].StringValue, "1493147359900")
		for _, n := range []string{"SenderId", "SentTimestamp", "ApproximateFirstReceiveTimestamp"} {
			w.want(n+" is there", m.Attributes[n] != "", true)
		}
	})
}

func TestBinaryAttribute(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		w.send(url, "b", typed("bin", "Binary.gif", string(all)), typed("num", "Number.int", "-1.5e3"))
		m := w.receive(url, 1)[0]
		w.want("bytes", m.MessageAttributes["bin"].BinaryValue, all)
		w.want("type", *m.MessageAttributes["bin"].DataType, "Binary.gif")
		w.want("number", *m.MessageAttributes["num"].StringValue, "-1.5e3")
	})
}

// SQS-F-61
func TestAttributeRefusals(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		w.send(url, "ok", attr("attr.1øßä", "v"), typed("n", "String.custom-label", "v"))
		for _, edit := range []func(*sdk.SendMessageInput){
			attr("", "v"), attr("AWS.x", "v"), attr("aMazon.x", "v"), attr(".x", "v"), attr("x.", "v"), attr("a b", "v"), attr(":authority", "v"),
			attr("x§", "v"), attr(strings.Repeat("n", 257), "v"),
			attr("x", ""), attr("x", "\x08"), attr("x", "\uffff"),
			typed("x", "", "v"), typed("x", "Invalid", "v"), typed("x", "Number."+strings.Repeat("l", 256), "1"), typed("x", "Number", "one"), typed("x", "Binary", ""),
		} {
			in := &sdk.SendMessageInput{}
			edit(in)
			_, err := w.trySend(url, "b", edit)
			if code(err) != "InvalidParameterValue" {
				t.Errorf("%v: %v", in.MessageAttributes, err)
			}
		}
		_, err := w.trySend(url, "b", func(m *sdk.SendMessageInput) {
			m.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{"Other": {DataType: aws.String("String"), StringValue: aws.String("v")}}
		})
		w.wantCode(err, "InvalidParameterValue")
		w.want("stored", w.counts(url)[0], "1")
	})
}

// SQS-F-15: the limit counts names, types and values of attributes.
func TestSizes(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		const mib = 1 << 20
		w.send(url, strings.Repeat("a", mib))
		_, err := w.trySend(url, strings.Repeat("a", mib+1))
		w.wantCode(err, "InvalidParameterValue")
		w.want("words", strings.Contains(err.Error(), "Message must be shorter than 1048576 bytes."), true)
		w.send(url, strings.Repeat("a", mib-len("name")-len("String")-len("value")), attr("name", "value"))
		_, err = w.trySend(url, strings.Repeat("a", mib-len("name")-len("String")-len("value")+1), attr("name", "value"))
		w.wantCode(err, "InvalidParameterValue")
		_, err = w.trySend(url, strings.Repeat("ü", mib/2+1)) // bytes count, not characters
		w.wantCode(err, "InvalidParameterValue")
		_, err = w.trySend(url, "")
		w.wantCode(err, "MissingParameter")

		batch := func(a, b int) error {
			_, err := w.c.SendMessageBatch(w.ctx(), &sdk.SendMessageBatchInput{QueueUrl: &url, Entries: []types.SendMessageBatchRequestEntry{
				{Id: aws.String("a"), MessageBody: aws.String(strings.Repeat("a", a))}, {Id: aws.String("b"), MessageBody: aws.String(strings.Repeat("b", b))},
			}})
			return err
		}
		w.must(batch(mib/2, mib/2))
		w.wantCode(batch(mib/2, mib/2+1), "AWS.SimpleQueueService.BatchRequestTooLong")
	})
}

// SQS-F-69
func TestCharacters(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		for _, ok := range []string{"\t\n\r \x7f", "\ud7ff\ue000\ufffd", "\U00010000\U0010ffff", "a\u2028b"} {
			w.send(url, ok)
			w.want("body", bodies(w.receive(url, 1)), []string{ok})
		}
		for _, bad := range []string{"\x00", "\x08", "\x1f", "\ufffe", "\uffff", "a\x0bb"} {
			_, err := w.trySend(url, bad)
			w.wantCode(err, "InvalidMessageContents")
		}
	})
}

// SQS-F-14, SQS-F-53, SQS-F-54: a bad entry harms no other.
func TestBatchPartialFailure(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q", "MaximumMessageSize", "1024")
		var in []types.SendMessageBatchRequestEntry
		for i, body := range []string{"0", "\x01", "2", strings.Repeat("x", 1025), "4"} {
			in = append(in, types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint("m", i)), MessageBody: aws.String(body)})
		}
		out, err := w.c.SendMessageBatch(w.ctx(), &sdk.SendMessageBatchInput{QueueUrl: &url, Entries: in})
		w.must(err)
		w.want("successful", len(out.Successful), 3)
		w.want("failed", []string{*out.Failed[0].Id, *out.Failed[0].Code, *out.Failed[1].Id, *out.Failed[1].Code},
			[]string{"m1", "InvalidMessageContents", "m3", "InvalidParameterValue"})
		w.want("words", *out.Failed[1].Message, "One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes.")
		w.want("sender's fault", out.Failed[1].SenderFault, true)

		got := w.receive(url, 10, lease(time.Minute))
		w.want("bodies", bodies(got), []string{"0", "2", "4"})
		del, err := w.c.DeleteMessageBatch(w.ctx(), &sdk.DeleteMessageBatchInput{QueueUrl: &url, Entries: []types.DeleteMessageBatchRequestEntry{
			{Id: aws.String("a"), ReceiptHandle: got[0].ReceiptHandle}, {Id: aws.String("b"), ReceiptHandle: aws.String("garbage")}, {Id: aws.String("c"), ReceiptHandle: got[2].ReceiptHandle},
		}})
		w.must(err)
		w.want("deleted", len(del.Successful), 2)
		w.want("refused", *del.Failed[0].Id+" "+*del.Failed[0].Code, "b ReceiptHandleIsInvalid")
		cmv, err := w.c.ChangeMessageVisibilityBatch(w.ctx(), &sdk.ChangeMessageVisibilityBatchInput{QueueUrl: &url, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
			{Id: aws.String("a"), ReceiptHandle: got[0].ReceiptHandle, VisibilityTimeout: 5}, {Id: aws.String("b"), ReceiptHandle: got[1].ReceiptHandle, VisibilityTimeout: 0},
		}})
		w.must(err)
		w.want("changed", len(cmv.Successful), 1)
		w.want("refused", *cmv.Failed[0].Id+" "+*cmv.Failed[0].Code, "a InvalidParameterValue")
		w.want("back", bodies(w.receive(url, 10)), []string{"2"})
	})
}

// SQS-F-52, SQS-F-67: what refuses a batch as a whole.
func TestBatchRefused(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		fifo := w.fifo("f")
		id := func(ids ...string) []types.SendMessageBatchRequestEntry {
			in := []types.SendMessageBatchRequestEntry{}
			for _, id := range ids {
				in = append(in, types.SendMessageBatchRequestEntry{Id: &id, MessageBody: aws.String("b")})
			}
			return in
		}
		ordered := func(group, dedup *string) []types.SendMessageBatchRequestEntry {
			in := id("ok", "bad")
			in[0].MessageGroupId, in[0].MessageDeduplicationId = aws.String("g"), aws.String("1")
			in[1].MessageGroupId, in[1].MessageDeduplicationId = group, dedup
			return in
		}
		for _, c := range []struct {
			url  string
			in   []types.SendMessageBatchRequestEntry
			want string
		}{
			{url, id(), "AWS.SimpleQueueService.EmptyBatchRequest"},
			{url, id("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"), "AWS.SimpleQueueService.TooManyEntriesInBatchRequest"},
			{url, id("a", "b", "a"), "AWS.SimpleQueueService.BatchEntryIdsNotDistinct"},
			{url, id("a", ""), "AWS.SimpleQueueService.InvalidBatchEntryId"},
			{url, id("a:b"), "AWS.SimpleQueueService.InvalidBatchEntryId"},
			{url, id(strings.Repeat("i", 81)), "AWS.SimpleQueueService.InvalidBatchEntryId"},
			{fifo, ordered(aws.String("g"), nil), "InvalidParameterValue"},
			{fifo, ordered(nil, aws.String("2")), "InvalidParameterValue"},
		} {
			_, err := w.c.SendMessageBatch(w.ctx(), &sdk.SendMessageBatchInput{QueueUrl: &c.url, Entries: c.in})
			w.wantCode(err, c.want)
		}
		w.want("nothing was stored", w.counts(url)[0]+w.counts(fifo)[0], "00")
	})
}

// What a receive may ask for.
func TestReceiveRefusals(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		for _, edit := range []func(*sdk.ReceiveMessageInput){
			func(in *sdk.ReceiveMessageInput) { in.MaxNumberOfMessages = 11 }, func(in *sdk.ReceiveMessageInput) { in.MaxNumberOfMessages = -1 },
			wait(21 * time.Second), wait(-time.Second), lease(12*time.Hour + time.Second), lease(-time.Second),
		} {
			_, err := w.tryReceive(url, 1, edit)
			w.wantCode(err, "InvalidParameterValue")
		}
		nowhere := url + "x"
		_, err := w.tryReceive(nowhere, 1)
		w.wantCode(err, "AWS.SimpleQueueService.NonExistentQueue")
	})
}
