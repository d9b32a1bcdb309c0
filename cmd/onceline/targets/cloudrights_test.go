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

// TestRights: the rights that docs/cloud.md asks for are those that a run of all
// claims uses, and its cleanup: none is missing, none is too much.
func TestRights(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/cloud.md")
	if err != nil {
		t.Fatal(err)
	}
	// One configuration of each asks for all that the others do.
	for _, c := range []struct {
		name   string
		start  starter
		target func(starter) conformance.Target
		right  func(line string) []string
		said   func(t *testing.T, block string) []string
	}{
		{"Amazon SQS", startModel(localstack.StartSQS), func(start starter) conformance.Target {
			return clocked(sqsFIFOTarget(), start, "", openSQS, oneName(".fifo"))
		}, sqsRight, saidByAWS},
		{"Google Pub/Sub", startModel(localstack.StartPubSub), func(start starter) conformance.Target {
			return clocked(pubsubExactlyOnceTarget(), start, "?exactly-once=true", openPubSub(true), oneName(""))
		}, pubsubRight, saidByGoogle},
		{"Azure Service Bus", startModel(localstack.StartServiceBus), func(start starter) conformance.Target {
			return clocked(serviceBusSessionsTarget(), start, "?sessions=true", openServiceBus, oneName(""))
		}, serviceBusRight, saidByAzure},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			requests := new(counter)
			traced := func(start starter) starter {
				return func(ctx context.Context) (*localstack.Model, error) {
					m, err := start(ctx)
					if err == nil {
						m.Trace(requests.line)
					}
					return m, err
				}
			}
			target := withoutPurge(c.target(traced(c.start)))
			target.Soak = quickSoak
			if _, err := conformance.Run(t.Context(), target, conformance.Options{}); err != nil {
				t.Fatal(err)
			}
			cleanUp(t, traced(c.start))
			used := map[string]string{}
			for _, line := range requests.lines {
				for _, right := range c.right(line) {
					used[right] = line
				}
			}
			_, section, _ := strings.Cut(string(page), "### "+c.name+"\n")
			_, block, _ := strings.Cut(section, "\n```")
			_, block, _ = strings.Cut(block, "\n")
			block, _, _ = strings.Cut(block, "```")
			said := c.said(t, block)
			if !slices.IsSorted(said) && c.name != "Amazon SQS" {
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
		})
	}
}

// withoutPurge is a target that is emptied by nobody, as those in a cloud are.
func withoutPurge(t conformance.Target) conformance.Target {
	start := t.Start
	t.Start = func(ctx context.Context) (*conformance.Instance, error) {
		i, err := start(ctx)
		if err == nil {
			i.Purge = nil
		}
		return i, err
	}
	t.Private = t.Start
	return t
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
// single call's right, and a queue that is made with tags needs that of tagging.
func sqsRight(line string) []string {
	op := strings.TrimSuffix(strings.Fields(line)[0], "Batch")
	if op == "?" {
		return nil // its caller was gone before it said what it asks
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
