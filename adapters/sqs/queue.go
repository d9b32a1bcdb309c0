package sqs

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

const (
	fifoSuffix = ".fifo"

	// maxName is how long a queue's name may be, its suffix included.
	maxName = 80

	// maxMessage is how large a message, and all those of a batch together, may
	// be, attributes included (SQS-F-15).
	maxMessage = 1 << 20

	// dedupWindow is how long a FIFO queue remembers an ID. It can't be set
	// (SQS-F-02).
	dedupWindow = 5 * time.Minute

	// defaultLease is the service's own visibility timeout; maxLease bounds the
	// sum of all that a delivery can get (SQS-F-18).
	defaultLease = 30 * time.Second
	maxLease     = 12 * time.Hour

	// batchSize is how many entries one request can have, of any kind.
	batchSize = 10
)

// Queue is what the service says of a queue. Publishers and receivers give it
// out through As. It is read once, when they open.
type Queue struct {
	Name string
	URL  string
	ARN  string // empty where the credentials may not read attributes
	FIFO bool
	// GroupScope is true where a FIFO queue compares IDs within a key only
	// (DeduplicationScope=messageGroup, SQS-F-06).
	GroupScope bool
	// ContentBased is true where the queue would invent an ID from the body for
	// a message without one. This adapter always sends one.
	ContentBased bool
	// Lease is the visibility timeout.
	Lease time.Duration
	// MaxMessage is how many bytes a message may have, attributes included.
	MaxMessage int
	// MaxDeliveries and DeadLetter are the redrive policy; zero without one.
	MaxDeliveries int
	DeadLetter    string // ARN

	wait time.Duration // what a receive without a wait of its own waits
}

// Boundary is where the guarantees of this queue end.
func (q *Queue) Boundary() boundary.Boundary {
	switch {
	case q.FIFO && q.GroupScope:
		return BoundaryFIFOGroups()
	case q.FIFO:
		return BoundaryFIFO()
	}
	return BoundaryStandard()
}

// mode is what a connection makes of names and wishes.
type mode uint8

const (
	byName   mode = iota // a name that ends in .fifo is that of a FIFO queue
	allFIFO              // every name is
	standard             // none is
)

// queueName is the service's name for a topic or subscription, and the account
// that owns it, "" for one's own.
func (c *conn) queueName(name string) (owner, queue string, err error) {
	queue = name
	if account, rest, ok := strings.Cut(name, "/"); ok {
		if len(account) != 12 || strings.Trim(account, "0123456789") != "" {
			return "", "", broker.Errorf(broker.ErrInvalid, nil, "queue %q: want a name, or a 12-digit account, a slash and a name", name)
		}
		owner, queue = account, rest
	}
	base, isFIFO := strings.CutSuffix(queue, fifoSuffix)
	switch {
	case c.opts.mode == allFIFO && !isFIFO:
		queue += fifoSuffix
	case c.opts.mode == standard && isFIFO:
		return "", "", broker.Errorf(broker.ErrInvalid, nil, "queue %q: the name of a FIFO queue, on a connection with fifo=false", name)
	}
	if base == "" || len(queue) > maxName || strings.ContainsFunc(base, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '-' && r != '_'
	}) {
		return "", "", broker.Errorf(broker.ErrInvalid, nil,
			"queue %q: want 1 to %d letters, digits, '-' and '_', with .fifo at the end for a FIFO queue", name, maxName)
	}
	return owner, queue, nil
}

// look finds a queue and reads what it is.
func (c *conn) look(ctx context.Context, name string) (*Queue, error) {
	owner, queue, err := c.queueName(name)
	if err != nil {
		return nil, err
	}
	return c.lookAt(ctx, owner, queue)
}

func (c *conn) lookAt(ctx context.Context, owner, queue string) (*Queue, error) {
	in := &awssqs.GetQueueUrlInput{QueueName: &queue}
	if owner != "" {
		in.QueueOwnerAWSAccountId = &owner
	}
	found, err := c.client.GetQueueUrl(ctx, in)
	if err != nil {
		return nil, failure(ctx, err, "queue %s", queue)
	}
	q := &Queue{Name: queue, URL: aws.ToString(found.QueueUrl), FIFO: strings.HasSuffix(queue, fifoSuffix), Lease: defaultLease, MaxMessage: maxMessage}
	out, err := c.client.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{QueueUrl: &q.URL,
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	if err != nil {
		err := failure(ctx, err, "queue %s: its attributes", queue)
		if errors.Is(err, broker.ErrUnauthorized) {
			// Credentials that may send or receive and no more are common. The
			// lease is then stated with each receive instead of read.
			return q, nil
		}
		return nil, err
	}
	q.read(out.Attributes)
	return q, nil
}

// read takes attributes into q. What can't be read leaves the service's default.
func (q *Queue) read(a map[string]string) {
	number := func(name types.QueueAttributeName) int {
		n, err := strconv.Atoi(a[string(name)])
		if err != nil || n < 0 {
			return 0
		}
		return n
	}
	q.ARN = a[string(types.QueueAttributeNameQueueArn)]
	q.GroupScope = a[string(types.QueueAttributeNameDeduplicationScope)] == "messageGroup"
	q.ContentBased = a[string(types.QueueAttributeNameContentBasedDeduplication)] == "true"
	q.wait = time.Duration(number(types.QueueAttributeNameReceiveMessageWaitTimeSeconds)) * time.Second
	// A visibility timeout of zero would make every delivery one that has
	// expired; receives then ask for the default.
	if n := number(types.QueueAttributeNameVisibilityTimeout); n > 0 {
		q.Lease = time.Duration(n) * time.Second
	}
	if n := number(types.QueueAttributeNameMaximumMessageSize); n > 0 {
		q.MaxMessage = min(n, maxMessage)
	}
	q.DeadLetter, q.MaxDeliveries = readRedrive(a[string(types.QueueAttributeNameRedrivePolicy)])
}

// readRedrive reads a redrive policy, whose count is written as a number by some
// and as a string by others.
func readRedrive(policy string) (arn string, most int) {
	var p struct {
		Target string `json:"deadLetterTargetArn"`
		Max    any    `json:"maxReceiveCount"`
	}
	if policy == "" || json.Unmarshal([]byte(policy), &p) != nil {
		return "", 0
	}
	switch n := p.Max.(type) {
	case float64:
		most = int(n)
	case string:
		most, _ = strconv.Atoi(n) // zero, no limit known, for what is no number
	}
	return p.Target, most
}

func writeRedrive(arn string, most int) string {
	target, _ := json.Marshal(arn) // a string always can be
	return `{"deadLetterTargetArn":` + string(target) + `,"maxReceiveCount":` + strconv.Itoa(most) + `}`
}

// splitARN returns account and name of a queue's ARN.
func splitARN(arn string) (owner, queue string, ok bool) {
	parts := strings.Split(arn, ":")
	if len(parts) != 6 || parts[2] != "sqs" || parts[5] == "" {
		return "", "", false
	}
	return parts[4], parts[5], true
}
