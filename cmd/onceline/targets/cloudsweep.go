package targets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"cloud.google.com/go/pubsub/v2"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceline/onceline/broker"
)

// sweepers is how many deletes are under way at a time.
const sweepers = 8

// sweep deletes what the run has left, on a connection of its own: first by the
// names that probes were given, for what was made a moment ago need not be listed,
// then by what the service lists under the prefix. Its error names what is left.
func (r *cloudRun) sweep(ctx context.Context) error {
	r.mu.Lock()
	given := slices.Clone(r.names)
	r.mu.Unlock()
	left, deleted, err := r.sweepAll(ctx, given)
	if deleted > 0 {
		r.say(fmt.Sprintf("the cleanup deleted %d that the probes had left", deleted))
	}
	if err == nil {
		r.say("nothing called " + r.prefix + "… is left")
		return nil
	}
	err = fmt.Errorf("LEFT BEHIND, to be deleted by hand: %s: %w", strings.Join(left, ", "), err)
	r.say(err.Error())
	return err
}

func (r *cloudRun) sweepAll(ctx context.Context, given []broker.Entity) (left []string, deleted int, err error) {
	c, err := broker.Open(ctx, r.raw)
	if err != nil {
		for _, e := range given {
			left = append(left, e.Topic)
		}
		return left, 0, err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	failed := map[string]error{}
	byName := func(es []broker.Entity) (again []broker.Entity) {
		inParallel(len(es), func(i int) error { return c.Delete(ctx, es[i]) }, func(i int, err error) {
			delete(failed, es[i].Topic)
			if err != nil {
				failed[es[i].Topic] = err
				again = append(again, es[i])
			}
		})
		return again
	}
	again := byName(given)
	if s := sweeperOf(c); s != nil {
		listed, err := s.list(ctx, r.prefix)
		if err != nil {
			failed[r.prefix+"…"] = err
		}
		inParallel(len(listed), func(i int) error { return s.delete(ctx, listed[i]) }, func(i int, err error) {
			switch {
			case err == nil:
				deleted++
			case !errors.Is(err, errGone):
				failed[listed[i].name] = err
			}
		})
	}
	// What the list had is gone now; what it hadn't may be there all the same.
	byName(again)
	return slices.Sorted(maps.Keys(failed)), deleted, errors.Join(slices.Collect(maps.Values(failed))...)
}

// inParallel calls do for 0 to n-1, a few at a time, and done with each result; calls
// of done don't overlap.
func inParallel(n int, do func(i int) error, done func(i int, err error)) {
	var mu sync.Mutex
	var all sync.WaitGroup
	places := make(chan struct{}, sweepers)
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			err := do(i)
			mu.Lock()
			defer mu.Unlock()
			done(i, err)
		})
	}
	all.Wait()
}

// errGone is what delete of a sweeper returns for what isn't there any more.
var errGone = errors.New("gone already")

// thing is what a service lists.
type thing struct{ kind, name string }

// sweeper is the vendor's own way to list what there is, which the contract hasn't.
type sweeper interface {
	// list returns what has a name with the prefix, in the order in which it can
	// be deleted.
	list(ctx context.Context, prefix string) ([]thing, error)
	// delete removes one of them.
	delete(ctx context.Context, t thing) error
}

// sweeperOf returns nil for a connection whose broker can only be asked by name.
func sweeperOf(c broker.Conn) sweeper {
	var (
		queues *sqs.Client
		google *pubsub.Client
		azure  *admin.Client
	)
	switch {
	case c.As(&queues):
		return sqsSweeper{queues}
	case c.As(&google):
		return pubsubSweeper{google}
	case c.As(&azure):
		return serviceBusSweeper{azure}
	}
	return nil
}

type sqsSweeper struct{ client *sqs.Client }

func (s sqsSweeper) list(ctx context.Context, prefix string) (ts []thing, err error) {
	pages := sqs.NewListQueuesPaginator(s.client, &sqs.ListQueuesInput{QueueNamePrefix: &prefix, MaxResults: aws.Int32(1000)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, url := range page.QueueUrls {
			// The prefix is asked for, and looked at: nothing else may be deleted.
			if strings.HasPrefix(url[strings.LastIndexByte(url, '/')+1:], prefix) {
				ts = append(ts, thing{"queue", url})
			}
		}
	}
	return ts, nil
}

func (s sqsSweeper) delete(ctx context.Context, t thing) error {
	_, err := s.client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: &t.name})
	if gone := (*types.QueueDoesNotExist)(nil); errors.As(err, &gone) {
		return errGone // a deleted queue is listed for up to a minute
	}
	return err
}

type pubsubSweeper struct{ client *pubsub.Client }

func (s pubsubSweeper) list(ctx context.Context, prefix string) (ts []thing, err error) {
	project := "projects/" + s.client.Project()
	// Subscriptions first: one without its topic would stay.
	subs := s.client.SubscriptionAdminClient.ListSubscriptions(ctx, &pb.ListSubscriptionsRequest{Project: project, PageSize: 1000})
	for {
		sub, err := subs.Next()
		if err != nil {
			if errors.Is(err, iterator.Done) {
				break
			}
			return nil, err
		}
		if strings.HasPrefix(sub.Name, project+"/subscriptions/"+prefix) {
			ts = append(ts, thing{"subscription", sub.Name})
		}
	}
	topics := s.client.TopicAdminClient.ListTopics(ctx, &pb.ListTopicsRequest{Project: project, PageSize: 1000})
	for {
		topic, err := topics.Next()
		if err != nil {
			if errors.Is(err, iterator.Done) {
				return ts, nil
			}
			return nil, err
		}
		if strings.HasPrefix(topic.Name, project+"/topics/"+prefix) {
			ts = append(ts, thing{"topic", topic.Name})
		}
	}
}

func (s pubsubSweeper) delete(ctx context.Context, t thing) (err error) {
	if t.kind == "topic" {
		err = s.client.TopicAdminClient.DeleteTopic(ctx, &pb.DeleteTopicRequest{Topic: t.name})
	} else {
		err = s.client.SubscriptionAdminClient.DeleteSubscription(ctx, &pb.DeleteSubscriptionRequest{Subscription: t.name})
	}
	if status.Code(err) == codes.NotFound {
		return errGone
	}
	return err
}

type serviceBusSweeper struct{ client *admin.Client }

func (s serviceBusSweeper) list(ctx context.Context, prefix string) (ts []thing, err error) {
	queues := s.client.NewListQueuesPager(nil)
	for queues.More() {
		page, err := queues.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, q := range page.Queues {
			if strings.HasPrefix(q.QueueName, prefix) {
				ts = append(ts, thing{"queue", q.QueueName})
			}
		}
	}
	topics := s.client.NewListTopicsPager(nil) // their subscriptions go with them
	for topics.More() {
		page, err := topics.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, t := range page.Topics {
			if strings.HasPrefix(t.TopicName, prefix) {
				ts = append(ts, thing{"topic", t.TopicName})
			}
		}
	}
	return ts, nil
}

func (s serviceBusSweeper) delete(ctx context.Context, t thing) (err error) {
	if t.kind == "topic" {
		_, err = s.client.DeleteTopic(ctx, t.name, nil)
	} else {
		_, err = s.client.DeleteQueue(ctx, t.name, nil)
	}
	if answer := (*azcore.ResponseError)(nil); errors.As(err, &answer) && answer.StatusCode == 404 {
		return errGone
	}
	return err
}
