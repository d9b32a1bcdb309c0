package targets

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/localstack"
)

// rights are what a cloud asks of those who run the suite there. A target's run on the
// model, traced, shows which it uses.
type rights struct {
	section string // of docs/cloud.md
	target  func(starter) conformance.Target
	start   starter
	of      func(line string) []string                // a line of the model's trace
	said    func(t *testing.T, block string) []string // by the section's block
}

// cloudRights are those of one configuration of each cloud, which asks for all that
// the others do.
var cloudRights = []rights{
	{"Amazon SQS", func(start starter) conformance.Target {
		return clocked(sqsFIFOTarget(), start, "", openSQS, oneName(".fifo"))
	}, startModel(localstack.StartSQS), sqsRight, saidByAWS},
	{"Google Pub/Sub", func(start starter) conformance.Target {
		return clocked(pubsubExactlyOnceTarget(), start, "?exactly-once=true", openPubSub(true), oneName(""))
	}, startModel(localstack.StartPubSub), pubsubRight, saidByGoogle},
	{"Azure Service Bus", func(start starter) conformance.Target {
		return clocked(serviceBusSessionsTarget(), start, "?sessions=true", openServiceBus, oneName(""))
	}, startModel(localstack.StartServiceBus), serviceBusRight, saidByAzure},
}

// traced starts models which tell their requests.
func (r rights) traced(to *counter) starter {
	return func(ctx context.Context) (*localstack.Model, error) {
		m, err := r.start(ctx)
		if err == nil {
			m.Trace(to.line)
		}
		return m, err
	}
}

// check holds the rights that docs/cloud.md asks for to those that a run of all
// claims used, and its cleanup: none is missing, none is too much.
func (r rights) check(t *testing.T, requests *counter) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/cloud.md")
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, r.traced(requests))
	used := map[string]string{}
	for _, line := range requests.lines {
		for _, right := range r.of(line) {
			used[right] = line
		}
	}
	_, section, _ := strings.Cut(string(page), "### "+r.section+"\n")
	_, block, _ := strings.Cut(section, "\n```")
	_, block, _ = strings.Cut(block, "\n")
	block, _, _ = strings.Cut(block, "```")
	said := r.said(t, block)
	if !slices.IsSorted(said) && r.section != "Amazon SQS" {
		t.Errorf("the rights are out of order: %v", said)
	}
	for right, line := range used {
		if !slices.Contains(said, right) {
			t.Errorf("%s is used and not listed: %s", right, line)
		}
	}
	for _, right := range said {
		if used[right] == "" {
			t.Errorf("%s is listed and not used", right)
		}
	}
}

// cleanUp is what a run's end asks.
func cleanUp(t *testing.T, start starter) {
	t.Helper()
	m, err := start(t.Context())
	closing(t, m, err)
	c, err := broker.Open(t.Context(), m.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if err := c.Ensure(t.Context(), broker.Entity{Topic: "onceline-x", Subscription: "onceline-x"}); err != nil {
		t.Fatal(err)
	}
	s := sweeperOf(c)
	found, err := s.list(t.Context(), "onceline-")
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	for _, one := range found {
		if err := s.delete(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
}

// sqsRight reads the model's trace: an operation, then its queue. A batch is the
// single call's right, and a queue that is made with tags needs that of tagging. No
// cloud's queue is purged: its target has no Purge.
func sqsRight(line string) []string {
	op := strings.TrimSuffix(strings.Fields(line)[0], "Batch")
	if op == "?" || op == "PurgeQueue" { // a caller may be gone before it said what it asks
		return nil
	}
	if op == "CreateQueue" {
		return []string{"sqs:CreateQueue", "sqs:TagQueue"}
	}
	return []string{"sqs:" + op}
}

// pubsubRight reads the model's trace: a method, then its resource.
func pubsubRight(line string) []string {
	method := strings.Fields(line)[0]
	switch method {
	case "Publish":
		return []string{"pubsub.topics.publish"}
	case "Pull", "StreamingPull", "Acknowledge", "ModifyAckDeadline":
		return []string{"pubsub.subscriptions.consume"}
	case "CreateSubscription":
		return []string{"pubsub.subscriptions.create", "pubsub.topics.attachSubscription"}
	}
	for _, verb := range []string{"Create", "Get", "Delete", "List", "Update"} {
		if kind, ok := strings.CutPrefix(method, verb); ok {
			return []string{"pubsub." + strings.ToLower(strings.TrimSuffix(kind, "s")) + "s." + strings.ToLower(verb)}
		}
	}
	return nil // what comes on a stream, which is open already
}

// serviceBusRight reads the model's trace: requests of the administration by HTTP,
// and links that are attached. A name that is neither queue nor topic is asked for
// as either.
func serviceBusRight(line string) []string {
	const at = "Microsoft.ServiceBus/namespaces/"
	fields := strings.Fields(line)
	switch {
	case fields[0] == "http" && fields[1] == "GET" && strings.Contains(strings.ToLower(fields[2]), "$resources/topics"):
		return []string{at + "topics/read"}
	case fields[0] == "http":
		verb := map[string]string{"GET": "read", "PUT": "write", "DELETE": "delete"}[fields[1]]
		return []string{at + "queues/" + verb}
	case fields[0] != "attach", fields[3] == "$cbs":
		return nil
	case strings.HasSuffix(fields[3], "/$management"), fields[1] == "receiver":
		return []string{at + "messages/receive/action"}
	}
	return []string{at + "messages/send/action"}
}

func saidByAWS(t *testing.T, block string) (rights []string) {
	t.Helper()
	var policy struct {
		Statement []struct {
			Effect   string
			Action   []string
			Resource string
		}
	}
	if err := json.Unmarshal([]byte(block), &policy); err != nil {
		t.Fatal(err)
	}
	for _, s := range policy.Statement {
		if s.Effect != "Allow" {
			t.Errorf("%s", s.Effect)
		}
		if wide := s.Resource == "*"; wide != slices.Equal(s.Action, []string{"sqs:ListQueues"}) || !wide && !strings.HasSuffix(s.Resource, ":"+cloudFamily+"*") {
			t.Errorf("%v on %s", s.Action, s.Resource)
		}
		rights = append(rights, s.Action...)
	}
	return rights
}

func saidByGoogle(_ *testing.T, block string) (rights []string) {
	for line := range strings.Lines(block) {
		if right, ok := strings.CutPrefix(line, "- "); ok {
			rights = append(rights, strings.TrimSpace(right))
		}
	}
	return rights
}

func saidByAzure(t *testing.T, block string) []string {
	t.Helper()
	var role struct{ Actions, DataActions []string }
	if err := json.Unmarshal([]byte(block), &role); err != nil {
		t.Fatal(err)
	}
	return append(role.DataActions, role.Actions...)
}
