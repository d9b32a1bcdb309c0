package sqs_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceline/onceline/localstack/sqs"
)

func (w world) create(name string, attrs map[string]string) error {
	_, err := w.c.CreateQueue(w.ctx(), &sdk.CreateQueueInput{QueueName: &name, Attributes: attrs})
	return err
}

func (w world) set(url string, attrs map[string]string) error {
	_, err := w.c.SetQueueAttributes(w.ctx(), &sdk.SetQueueAttributesInput{QueueUrl: &url, Attributes: attrs})
	return err
}

func (w world) drop(url string) {
	w.t.Helper()
	_, err := w.c.DeleteQueue(w.ctx(), &sdk.DeleteQueueInput{QueueUrl: &url})
	w.must(err)
}

// SQS-F-58, SQS-F-56
func TestCreateQueue(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q", "DelaySeconds", "1")
		w.want("the same", w.queue("q", "DelaySeconds", "1"), url)
		w.want("without attributes", w.queue("q"), url)
		w.want("a default spelled out", w.queue("q", "VisibilityTimeout", "30"), url)
		err := w.create("q", map[string]string{"DelaySeconds": "2"})
		w.wantCode(err, "QueueAlreadyExists")
		w.want("names the attribute", strings.Contains(err.Error(), "attribute DelaySeconds"), true)
		w.must(w.set(url, map[string]string{"DelaySeconds": "2"}))
		w.want("after the change", w.queue("q", "DelaySeconds", "2"), url)

		w.drop(url)
		_, err = w.trySend(url, "b")
		w.wantCode(err, "AWS.SimpleQueueService.NonExistentQueue")
		time.Sleep(59 * time.Second)
		w.wantCode(w.create("q", nil), "AWS.SimpleQueueService.QueueDeletedRecently")
		time.Sleep(time.Second)
		w.must(w.create("q", nil))
		w.want("new defaults", w.attrs(url)["DelaySeconds"], "0")
	})
}

func TestQueueNames(t *testing.T) {
	inBubble(t, func(w world) {
		fifo := map[string]string{"FifoQueue": "true"}
		for _, c := range []struct {
			name  string
			attrs map[string]string
			want  string
		}{
			{strings.Repeat("n", 80), nil, ""}, {strings.Repeat("n", 81), nil, "InvalidParameterValue"},
			{"a.b", nil, "InvalidParameterValue"}, {"a/b", nil, "InvalidParameterValue"}, {"a b", nil, "InvalidParameterValue"},
			{"q.fifo", nil, "InvalidParameterValue"}, {"q", fifo, "InvalidParameterValue"}, {".fifo", fifo, "InvalidParameterValue"},
			{strings.Repeat("n", 75) + ".fifo", fifo, ""}, {strings.Repeat("n", 76) + ".fifo", fifo, "InvalidParameterValue"},
			{"", nil, "MissingParameter"},
		} {
			if got := code(w.create(c.name, c.attrs)); got != c.want {
				t.Errorf("%q %v: %q, want %q", c.name, c.attrs, got, c.want)
			}
		}
	})
}

// SQS-F-66
func TestQueueAttributes(t *testing.T) {
	inBubble(t, func(w world) {
		std := w.attrs(w.queue("std"))
		for name, want := range map[string]string{
			"ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesDelayed": "0", "ApproximateNumberOfMessagesNotVisible": "0",
			"DelaySeconds": "0", "MaximumMessageSize": "1048576", "MessageRetentionPeriod": "345600", "ReceiveMessageWaitTimeSeconds": "0",
			"SqsManagedSseEnabled": "true", "VisibilityTimeout": "30", "QueueArn": "arn:aws:sqs:eu-west-1:123456789012:std",
			"CreatedTimestamp": fmt.Sprint(time.Now().Unix()), "LastModifiedTimestamp": fmt.Sprint(time.Now().Unix()),
		} {
			w.want(name, std[name], want)
		}
		w.want("number of them", len(std), 12)
		fifo := w.attrs(w.fifo("f"))
		w.want("number of a FIFO queue's", len(fifo), 16)
		w.want("FIFO", []string{fifo["FifoQueue"], fifo["ContentBasedDeduplication"], fifo["DeduplicationScope"], fifo["FifoThroughputLimit"]},
			[]string{"true", "false", "queue", "perQueue"})
	}, sqs.Region("eu-west-1"), sqs.Account("123456789012"))
}

// SQS-F-66, SQS-F-06
func TestAttributeValues(t *testing.T) {
	inBubble(t, func(w world) {
		std, fifo := w.queue("std"), w.fifo("f")
		for _, c := range []struct {
			url, name, value, want string
		}{
			{std, "VisibilityTimeout", "43200", ""}, {std, "VisibilityTimeout", "43201", "InvalidAttributeValue"}, {std, "VisibilityTimeout", "-1", "InvalidAttributeValue"},
			{std, "VisibilityTimeout", "x", "InvalidAttributeValue"}, {std, "DelaySeconds", "901", "InvalidAttributeValue"},
			{std, "MessageRetentionPeriod", "59", "InvalidAttributeValue"}, {std, "MessageRetentionPeriod", "1209600", ""},
			{std, "ReceiveMessageWaitTimeSeconds", "21", "InvalidAttributeValue"}, {std, "MaximumMessageSize", "1023", "InvalidAttributeValue"},
			{std, "MaximumMessageSize", "1048577", "InvalidAttributeValue"}, {std, "MaximumMessageSize", "1024", ""},
			{std, "Unknown", "1", "InvalidAttributeName"}, {std, "QueueArn", "arn", "InvalidAttributeName"}, {std, "FifoQueue", "true", "InvalidAttributeName"},
			{std, "ContentBasedDeduplication", "true", "InvalidAttributeName"}, {std, "DeduplicationScope", "queue", "InvalidAttributeName"},
			{fifo, "FifoQueue", "false", "InvalidAttributeValue"}, {fifo, "FifoThroughputLimit", "perMessageGroupId", "InvalidParameterValue"},
			{fifo, "DeduplicationScope", "nobody", "InvalidAttributeValue"}, {fifo, "DeduplicationScope", "messageGroup", ""}, {fifo, "FifoThroughputLimit", "perMessageGroupId", ""},
			{std, "Policy", "{", "InvalidAttributeValue"}, {std, "Policy", "", ""}, {std, "KmsMasterKeyId", "alias/x", ""}, {std, "KmsDataKeyReusePeriodSeconds", "59", "InvalidAttributeValue"},
			{std, "RedriveAllowPolicy", "{}", "InvalidParameterValue"}, {std, "RedriveAllowPolicy", `{"redrivePermission":"allowAll"}`, ""},
		} {
			if got := code(w.set(c.url, map[string]string{c.name: c.value})); got != c.want {
				t.Errorf("%s = %q: %q, want %q", c.name, c.value, got, c.want)
			}
		}
		a := w.attrs(std)
		w.want("KMS ends the other", a["SqsManagedSseEnabled"]+a["KmsMasterKeyId"], "falsealias/x")
		w.wantCode(w.set(std, map[string]string{"KmsMasterKeyId": "k", "SqsManagedSseEnabled": "true"}), "InvalidAttributeName")
		// A refused request changes nothing.
		w.wantCode(w.set(std, map[string]string{"DelaySeconds": "7", "VisibilityTimeout": "x"}), "InvalidAttributeValue")
		w.want("unchanged", w.attrs(std)["DelaySeconds"], "0")
		_, err := w.c.GetQueueAttributes(w.ctx(), &sdk.GetQueueAttributesInput{QueueUrl: &std, AttributeNames: []types.QueueAttributeName{"Unknown"}})
		w.wantCode(err, "InvalidAttributeName")
	})
}

// SQS-F-71
func TestListQueues(t *testing.T) {
	inBubble(t, func(w world) {
		for i := range 5 {
			w.queue(fmt.Sprint("list-", i))
		}
		w.queue("other")
		var got []string
		pages := 0
		p := sdk.NewListQueuesPaginator(w.c, &sdk.ListQueuesInput{QueueNamePrefix: aws.String("list-"), MaxResults: aws.Int32(2)})
		for p.HasMorePages() {
			out, err := p.NextPage(w.ctx())
			w.must(err)
			pages++
			for _, u := range out.QueueUrls {
				got = append(got, u[strings.LastIndexByte(u, '/')+1:])
			}
		}
		w.want("queues", got, []string{"list-0", "list-1", "list-2", "list-3", "list-4"})
		w.want("pages", pages, 3)
		all, err := w.c.ListQueues(w.ctx(), &sdk.ListQueuesInput{})
		w.must(err)
		w.want("all in one page", len(all.QueueUrls), 6)
		w.want("no token", all.NextToken == nil, true)
		_, err = w.c.ListQueues(w.ctx(), &sdk.ListQueuesInput{MaxResults: aws.Int32(1001)})
		w.wantCode(err, "InvalidParameterValue")
		_, err = w.c.ListQueues(w.ctx(), &sdk.ListQueuesInput{MaxResults: aws.Int32(1), NextToken: aws.String("!")})
		w.wantCode(err, "InvalidParameterValue")
		none, err := w.c.ListQueues(w.ctx(), &sdk.ListQueuesInput{QueueNamePrefix: aws.String("none")})
		w.must(err)
		w.want("none", len(none.QueueUrls), 0)
	})
}

func TestGetQueueURL(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		out, err := w.c.GetQueueUrl(w.ctx(), &sdk.GetQueueUrlInput{QueueName: aws.String("q")})
		w.must(err)
		w.want("url", *out.QueueUrl, url)
		w.want("form", url, "http://sqs.local/000000000000/q")
		_, err = w.c.GetQueueUrl(w.ctx(), &sdk.GetQueueUrlInput{QueueName: aws.String("none")})
		w.wantCode(err, "AWS.SimpleQueueService.NonExistentQueue")
		_, err = w.c.GetQueueUrl(w.ctx(), &sdk.GetQueueUrlInput{QueueName: aws.String("q"), QueueOwnerAWSAccountId: aws.String("999999999999")})
		w.wantCode(err, "AWS.SimpleQueueService.NonExistentQueue")
	})
}

// SQS-F-72
func TestTags(t *testing.T) {
	inBubble(t, func(w world) {
		out, err := w.c.CreateQueue(w.ctx(), &sdk.CreateQueueInput{QueueName: aws.String("q"), Tags: map[string]string{"a": "1"}})
		w.must(err)
		url := out.QueueUrl
		tags := func() map[string]string {
			out, err := w.c.ListQueueTags(w.ctx(), &sdk.ListQueueTagsInput{QueueUrl: url})
			w.must(err)
			return out.Tags
		}
		_, err = w.c.TagQueue(w.ctx(), &sdk.TagQueueInput{QueueUrl: url, Tags: map[string]string{"a": "2", "A": "3", "b": ""}})
		w.must(err)
		w.want("tags", tags(), map[string]string{"a": "2", "A": "3", "b": ""})
		_, err = w.c.UntagQueue(w.ctx(), &sdk.UntagQueueInput{QueueUrl: url, TagKeys: []string{"a", "none"}})
		w.must(err)
		w.want("tags", tags(), map[string]string{"A": "3", "b": ""})
		many := map[string]string{}
		for i := range 49 {
			many[fmt.Sprint(i)] = ""
		}
		_, err = w.c.TagQueue(w.ctx(), &sdk.TagQueueInput{QueueUrl: url, Tags: many})
		w.wantCode(err, "InvalidParameterValue")
		w.want("unchanged", len(tags()), 2)
	})
}

// SQS-F-65
func TestPermissions(t *testing.T) {
	inBubble(t, func(w world) {
		url := w.queue("q")
		add := func(label string, actions ...string) error {
			_, err := w.c.AddPermission(w.ctx(), &sdk.AddPermissionInput{QueueUrl: &url, Label: &label, AWSAccountIds: []string{"668614515564"}, Actions: actions})
			return err
		}
		remove := func(label string) error {
			_, err := w.c.RemovePermission(w.ctx(), &sdk.RemovePermissionInput{QueueUrl: &url, Label: &label})
			return err
		}
		w.must(add("one", "ReceiveMessage"))
		w.wantCode(add("one", "SendMessage"), "InvalidParameterValue")
		w.wantCode(add("two", "CreateQueue"), "InvalidParameterValue")
		w.must(add("two", "SendMessage", "DeleteMessage"))
		var p struct {
			Version, ID string
			Statement   []struct {
				Sid, Effect, Resource string
				Principal             map[string]string
				Action                any
			}
		}
		w.must(json.Unmarshal([]byte(w.attrs(url)["Policy"]), &p))
		w.want("statements", len(p.Statement), 2)
		first := p.Statement[0]
		w.want("first", []any{p.Version, first.Sid, first.Effect, first.Resource, first.Principal["AWS"], first.Action},
			[]any{"2008-10-17", "one", "Allow", "arn:aws:sqs:us-east-1:000000000000:q", "arn:aws:iam::668614515564:root", "SQS:ReceiveMessage"})
		w.must(remove("one"))
		w.wantCode(remove("one"), "InvalidParameterValue")
		w.must(remove("two"))
		_, left := w.attrs(url)["Policy"]
		w.want("no policy", left, false)

		// A policy of another make isn't overwritten.
		own := `{"Version":"2012-10-17","Statement":{"Sid":"own","Effect":"Allow"}}`
		w.must(w.set(url, map[string]string{"Policy": own}))
		w.wantCode(add("one", "ReceiveMessage"), "InvalidAttributeValue")
		w.want("kept", w.attrs(url)["Policy"], own)
	})
}

func TestAccessKey(t *testing.T) {
	inBubble(t, func(w world) {
		w.must(w.create("q", nil)) // the client signs with "key"
	}, sqs.RequireAccessKey("key"))
	inBubble(t, func(w world) {
		w.wantCode(w.create("q", nil), "InvalidClientTokenId")
	}, sqs.RequireAccessKey("other"))
}
