package servicebus_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/onceline/onceline/localstack/servicebus"
)

// TestTopic: each subscription gets what its rules choose, once, as the vendor's
// client has set them up; a rule with an action makes a copy of its own.
func TestTopic(t *testing.T) {
	ctx := t.Context()
	s, connection := start(t)
	a := adminClient(t, connection)
	if _, err := a.CreateTopic(ctx, "Prices", &admin.CreateTopicOptions{Properties: &admin.TopicProperties{RequiresDuplicateDetection: to.Ptr(true)}}); err != nil {
		t.Fatal(err)
	}
	rules := map[string]struct {
		filter admin.RuleFilter
		action admin.RuleAction
		want   []string
	}{
		"all":    {&admin.TrueFilter{}, nil, []string{"1", "2", "3"}},
		"none":   {&admin.FalseFilter{}, nil, nil},
		"cheap":  {&admin.SQLFilter{Expression: "price < @limit AND sys.Label LIKE 'of%'", Parameters: map[string]any{"@limit": int32(10)}}, nil, []string{"1"}},
		"coffee": {&admin.CorrelationFilter{Subject: to.Ptr("offer"), ApplicationProperties: map[string]any{"what": "coffee", "price": int64(12)}}, nil, []string{"2"}},
		"marked": {&admin.SQLFilter{Expression: "EXISTS(price)"}, &admin.SQLAction{Expression: "SET mark = price * 2; SET sys.Label = 'marked'; REMOVE what"}, []string{"1", "2"}},
	}
	for name, r := range rules {
		_, err := a.CreateSubscription(ctx, "prices", name, &admin.CreateSubscriptionOptions{Properties: &admin.SubscriptionProperties{
			DefaultRule: &admin.RuleProperties{Name: "first", Filter: r.filter, Action: r.action}}})
		if err != nil {
			t.Fatal(name, err)
		}
	}
	c := dial(t, connection)
	sender := must(c.NewSender("prices", nil))(t)
	one, two, three := message("1", "x"), message("2", "x"), message("3", "x")
	one.Subject, two.Subject = to.Ptr("offer"), to.Ptr("offer")
	one.ApplicationProperties = map[string]any{"price": int32(5), "what": "tea"}
	two.ApplicationProperties = map[string]any{"price": int64(12), "what": "coffee"}
	send(t, sender, one, two, three, one)
	for name, r := range rules {
		rx := must(c.NewReceiverForSubscription("prices", name, nil))(t)
		var got []string
		for _, m := range receive(t, rx, len(r.want)) {
			got = append(got, m.MessageID)
			if name == "marked" {
				price, _ := map[string]int64{"1": 5, "2": 12}[m.MessageID]
				if m.ApplicationProperties["mark"] != price*2 || *m.Subject != "marked" || m.ApplicationProperties["what"] != nil || m.ApplicationProperties["RuleName"] != "first" {
					t.Errorf("marked %s: %v, %s", m.MessageID, m.ApplicationProperties, *m.Subject)
				}
			}
			if err := rx.CompleteMessage(ctx, m, nil); err != nil {
				t.Error(err)
			}
		}
		if !slices.Equal(got, r.want) {
			t.Errorf("%s got %v, want %v", name, got, r.want)
		}
		if n := must(s.Count("prices/subscriptions/" + name))(t); n.Active != 0 {
			t.Errorf("%s has %d more", name, n.Active)
		}
	}
}

// TestServiceDeadLetters: what the service itself puts aside carries its reasons: a
// copy without a session for a subscription that has sessions, one whose filter can't
// be evaluated, if the subscription wants that, and a message that was forwarded too
// often (SB-F-19).
func TestServiceDeadLetters(t *testing.T) {
	ctx := t.Context()
	s, connection := start(t)
	a := adminClient(t, connection)
	must(a.CreateTopic(ctx, "t", nil))(t)
	must(a.CreateSubscription(ctx, "t", "sessions", &admin.CreateSubscriptionOptions{Properties: &admin.SubscriptionProperties{RequiresSession: to.Ptr(true)}}))(t)
	undecided := func(name string, letters bool) {
		must(a.CreateSubscription(ctx, "t", name, &admin.CreateSubscriptionOptions{Properties: &admin.SubscriptionProperties{
			EnableDeadLetteringOnFilterEvaluationExceptions: to.Ptr(letters),
			DefaultRule: &admin.RuleProperties{Name: "r", Filter: &admin.SQLFilter{Expression: "sys.nothing = 1"}}}}))(t)
	}
	undecided("told", true)
	undecided("untold", false)
	for i := range servicebus.MaxHops + 2 {
		p := servicebus.QueueProperties{}
		if i > 0 {
			p.ForwardTo = fmt.Sprint("hop", i-1)
		}
		create(t, s, fmt.Sprint("hop", i), p)
	}
	c := dial(t, connection)
	send(t, must(c.NewSender("t", nil))(t), message("1", "x"))
	send(t, must(c.NewSender(fmt.Sprint("hop", servicebus.MaxHops+1), nil))(t), message("2", "x"))
	letters := &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}
	for from, want := range map[*azservicebus.Receiver][2]string{
		must(c.NewReceiverForSubscription("t", "sessions", letters))(t): {"Session ID is null.", "Session enabled entity doesn't allow a message whose session identifier is null."},
		must(c.NewReceiverForSubscription("t", "told", letters))(t):     {"FilterEvaluationException", "*"},
		must(c.NewReceiverForQueue("hop1", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueTransfer}))(t): {
			"MaxTransferHopCountExceeded", "The maximum number of allowed hops when forwarding between entities was exceeded."},
	} {
		got := receive(t, from, 1)[0]
		if *got.DeadLetterReason != want[0] || *got.DeadLetterErrorDescription != want[1] && want[1] != "*" || *got.DeadLetterErrorDescription == "" {
			t.Errorf("%s: %q, %q; want %q", got.MessageID, *got.DeadLetterReason, *got.DeadLetterErrorDescription, want)
		}
	}
	if n := must(s.Count("t/subscriptions/untold"))(t); n != (servicebus.Counts{}) {
		t.Errorf("a subscription that doesn't want to be told has %+v", n)
	}
}

// TestAdminRules reads back, changes and removes rules and subscriptions.
func TestAdminRules(t *testing.T) {
	ctx := t.Context()
	_, connection := start(t)
	a := adminClient(t, connection)
	must(a.CreateTopic(ctx, "t", nil))(t)
	must(a.CreateSubscription(ctx, "t", "s", &admin.CreateSubscriptionOptions{Properties: &admin.SubscriptionProperties{LockDuration: to.Ptr("PT10S")}}))(t)
	when := time.Date(2026, 1, 2, 3, 4, 5, 6000000, time.UTC)
	filter := &admin.CorrelationFilter{MessageID: to.Ptr("<id>"), To: to.Ptr("you"),
		ApplicationProperties: map[string]any{"s": "x & y", "i": int64(-3), "b": true, "f": 1.5, "t": when}}
	must(a.CreateRule(ctx, "t", "s", &admin.CreateRuleOptions{Name: to.Ptr("r"), Filter: filter,
		Action: &admin.SQLAction{Expression: "SET a = @v", Parameters: map[string]any{"@v": "w"}}}))(t)
	if _, err := a.CreateRule(ctx, "t", "s", &admin.CreateRuleOptions{Name: to.Ptr("r"), Filter: filter}); status(err) != http.StatusConflict {
		t.Errorf("twice: %v", err)
	}
	if _, err := a.CreateRule(ctx, "t", "s", &admin.CreateRuleOptions{Name: to.Ptr("bad"), Filter: &admin.SQLFilter{Expression: "a = "}}); status(err) != http.StatusBadRequest {
		t.Errorf("bad expression: %v", err)
	}
	got := must(a.GetRule(ctx, "t", "s", "r", nil))(t)
	f := got.Filter.(*admin.CorrelationFilter)
	if *f.MessageID != "<id>" || *f.To != "you" || f.Subject != nil || len(f.ApplicationProperties) != 5 || f.ApplicationProperties["s"] != "x & y" ||
		f.ApplicationProperties["i"] != int64(-3) || f.ApplicationProperties["b"] != true || f.ApplicationProperties["f"] != 1.5 || !when.Equal(f.ApplicationProperties["t"].(time.Time)) {
		t.Errorf("read back %+v", f)
	}
	if act := got.Action.(*admin.SQLAction); act.Expression != "SET a = @v" || act.Parameters["@v"] != "w" {
		t.Errorf("read back %+v", got.Action)
	}
	must(a.UpdateRule(ctx, "t", "s", admin.RuleProperties{Name: "r", Filter: &admin.SQLFilter{Expression: "1=1"}}))(t)
	var names []string
	for p := a.NewListRulesPager("t", "s", nil); p.More(); {
		for _, r := range must(p.NextPage(ctx))(t).Rules {
			names = append(names, r.Name)
		}
	}
	if !slices.Equal(names, []string{"$Default", "r"}) {
		t.Errorf("listed %v", names)
	}
	must(a.DeleteRule(ctx, "t", "s", "r", nil))(t)
	if r, err := a.GetRule(ctx, "t", "s", "r", nil); r != nil || err != nil {
		t.Errorf("after removal: %v, %v", r, err)
	}
	sub := must(a.GetSubscription(ctx, "t", "s", nil))(t)
	if *sub.LockDuration != "PT10S" || sub.SubscriptionName != "s" {
		t.Errorf("subscription %+v", sub)
	}
	top := must(a.GetTopicRuntimeProperties(ctx, "t", nil))(t)
	if top.SubscriptionCount != 1 {
		t.Errorf("topic %+v", top)
	}
	must(a.DeleteSubscription(ctx, "t", "s", nil))(t)
	if sub, err := a.GetSubscription(ctx, "t", "s", nil); sub != nil || err != nil {
		t.Errorf("after removal: %v, %v", sub, err)
	}
	must(a.DeleteTopic(ctx, "t", nil))(t)
}

// TestScheduled: messages come at their time with new numbers, and can be cancelled
// before; duplicates get a number of nothing (SB-F-07, SB-F-28).
func TestScheduled(t *testing.T) {
	ctx := t.Context()
	s, connection := start(t)
	create(t, s, "q", servicebus.QueueProperties{DuplicateDetection: true})
	if err := s.CreateTopic("t", servicebus.QueueProperties{}); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateSubscription("t", "s", servicebus.QueueProperties{}); err != nil {
		t.Fatal(err)
	}
	c := dial(t, connection)
	sender := must(c.NewSender("q", nil))(t)
	due := s.Clock().Now().Add(time.Hour)
	numbers := must(sender.ScheduleMessages(ctx, []*azservicebus.Message{message("a", "x"), message("b", "x"), message("a", "again")}, due, nil))(t)
	if !slices.Equal(numbers, []int64{1, 2, 3}) {
		t.Errorf("numbers %v", numbers)
	}
	if err := sender.CancelScheduledMessages(ctx, numbers[1:2], nil); err != nil {
		t.Error(err)
	}
	if err := sender.CancelScheduledMessages(ctx, numbers[2:], nil); err == nil {
		t.Error("cancelled what isn't there")
	}
	topic := must(c.NewSender("t", nil))(t)
	must(topic.ScheduleMessages(ctx, []*azservicebus.Message{message("t", "x")}, due, nil))(t)
	r := must(c.NewReceiverForQueue("q", nil))(t)
	if ms := must(r.PeekMessages(ctx, 10, nil))(t); len(ms) != 1 || ms[0].State != azservicebus.MessageStateScheduled {
		t.Errorf("peeked %v", ms)
	}
	s.Clock().Advance(time.Hour - time.Minute)
	if n := must(s.Count("q"))(t); n.Scheduled != 1 || n.Active != 0 {
		t.Errorf("before: %+v", n)
	}
	s.Clock().Advance(time.Minute)
	if m := receive(t, r, 1)[0]; m.MessageID != "a" || *m.SequenceNumber != 4 || m.EnqueuedTime.Before(due.Truncate(time.Millisecond)) {
		t.Errorf("got %s, number %d, at %v", m.MessageID, *m.SequenceNumber, m.EnqueuedTime)
	}
	sub := must(c.NewReceiverForSubscription("t", "s", nil))(t)
	if m := receive(t, sub, 1)[0]; m.MessageID != "t" {
		t.Errorf("got %s", m.MessageID)
	}
}
