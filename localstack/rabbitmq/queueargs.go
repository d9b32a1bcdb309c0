package rabbitmq

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// overflow is what a queue at its limit does with one more message.
type overflow uint8

const (
	dropHead overflow = iota
	rejectPublish
	rejectPublishDLX
)

// limits are what a queue's arguments say. -1 is no limit.
type limits struct {
	maxLength       int64
	maxBytes        int64
	overflow        overflow
	messageTTL      int64 // ms
	expires         time.Duration
	deadLetters     bool // to dlx
	dlx             string
	dlxKey          string
	hasDLXKey       bool
	atLeastOnce     bool
	priorities      int // levels
	singleActive    bool
	deliveryLimit   int64
	consumerTimeout int64 // ms; 0 is never
}

// queueArgs are the arguments that each kind of queue knows; a declaration is
// compared by those alone. One that only another kind knows is refused.
var (
	commonArgs = []string{
		"x-dead-letter-exchange", "x-dead-letter-routing-key", "x-expires", "x-max-length", "x-max-length-bytes",
		"x-message-ttl", "x-overflow", "x-queue-type", "x-single-active-consumer",
	}
	classicArgs = append(commonArgs[:len(commonArgs):len(commonArgs)], "x-max-priority", "x-queue-mode", "x-queue-version", "x-queue-master-locator")
	quorumArgs  = append(commonArgs[:len(commonArgs):len(commonArgs)],
		"x-dead-letter-strategy", "x-max-in-memory-length", "x-max-in-memory-bytes", "x-quorum-initial-group-size",
		"x-delivery-limit", "x-queue-leader-locator", "x-consumer-disconnected-timeout", "x-consumer-timeout",
		"x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max")
	streamArgs = []string{"x-max-age", "x-stream-max-segment-size-bytes", "x-stream-filter-size-bytes", "x-initial-cluster-size"}
)

func (q *queue) knownArgs() []string {
	if q.quorum {
		return quorumArgs
	}
	return classicArgs
}

// kind is the queue's type in RabbitMQ's errors.
func (q *queue) kind() string {
	if q.quorum {
		return "rabbit_quorum_queue"
	}
	return "rabbit_classic_queue"
}

// readArgs checks the arguments of a new queue and takes what they say.
func (q *queue) readArgs(s *Server) *exception {
	q.limits = limits{
		maxLength: -1, maxBytes: -1, messageTTL: -1, deliveryLimit: -1, priorities: 1,
		consumerTimeout: s.timeout.Milliseconds(),
	}
	if q.quorum {
		q.priorities = quorumLevels
		if s.release == V4 {
			q.deliveryLimit = defaultDeliveryLimit
		}
	}
	if v, ok := q.args.Get("x-dead-letter-exchange"); ok {
		if q.dlx, q.deadLetters = v.(string); !q.deadLetters {
			return refuse(amqp.PreconditionFailed, "invalid type '%s' for arg 'x-dead-letter-exchange' in %s", typeName(v), q.text())
		}
	}
	known := q.knownArgs()
	for _, f := range q.args {
		if !slices.Contains(known, f.Name) {
			if slices.Contains(classicArgs, f.Name) || slices.Contains(quorumArgs, f.Name) || slices.Contains(streamArgs, f.Name) {
				return refuse(amqp.PreconditionFailed, "invalid arg '%s' for %s of queue type %s", f.Name, q.text(), q.kind())
			}
			continue
		}
		if reason := q.readArg(f.Name, f.Value); reason != "" {
			return refuse(amqp.PreconditionFailed, "invalid arg '%s' for %s: %s", f.Name, q.text(), reason)
		}
	}
	if q.hasDLXKey && !q.deadLetters {
		return refuse(amqp.PreconditionFailed, "invalid arg 'x-dead-letter-routing-key' for %s: routing_key_but_no_dlx_defined", q.text())
	}
	q.levels = make([]deque[item], q.priorities)
	return nil
}

// defaultDeliveryLimit is how many failed deliveries a quorum queue bears
// (RMQ-F-14).
const defaultDeliveryLimit = 20

// readArg takes one argument, or says why it is refused.
func (q *queue) readArg(name string, v any) (reason string) {
	switch name {
	case "x-max-length":
		q.maxLength, reason = number(v, math.MaxInt64)
	case "x-max-length-bytes":
		q.maxBytes, reason = number(v, math.MaxInt64)
	case "x-message-ttl":
		q.messageTTL, reason = number(v, maxExpiry)
	case "x-expires":
		var ms int64
		if ms, reason = number(v, maxExpiry); reason == "" && ms == 0 {
			reason = "{value_zero,0}"
		}
		q.expires = time.Duration(ms) * time.Millisecond
	case "x-max-priority":
		var n int64
		n, reason = number(v, math.MaxInt64)
		if reason == "" && n > 255 {
			reason = fmt.Sprintf("{max_value_exceeded,%d}", n)
		}
		q.priorities = int(min(n, maxLevel)) + 1
	case "x-consumer-timeout":
		q.consumerTimeout, reason = number(v, math.MaxInt64)
	case "x-delivery-limit":
		n, ok := amqp.Int(v)
		if !ok {
			return notInteger(v)
		}
		q.deliveryLimit = max(n, -1)
	case "x-single-active-consumer":
		b, ok := v.(bool)
		if q.singleActive = b; !ok {
			reason = "{unacceptable_type," + typeName(v) + "}"
		}
	case "x-dead-letter-routing-key":
		if q.dlxKey, q.hasDLXKey = v.(string); !q.hasDLXKey {
			reason = "{unacceptable_type," + typeName(v) + "}"
		}
	case "x-overflow":
		reason = q.readOverflow(v)
	case "x-dead-letter-strategy":
		q.atLeastOnce = v == "at-least-once"
		if !q.atLeastOnce && v != "at-most-once" {
			reason = "invalid_dlx_strategy"
		}
	}
	return reason
}

// maxLevel bounds the levels of a classic queue's priorities, of which 64 can be
// told apart here: RabbitMQ knows up to 255 and advises no more than 10.
const maxLevel = 63

// quorumLevels is how many priorities a quorum queue has (RMQ-F-26).
const quorumLevels = 32

// quorumLevel is a message's level in a quorum queue: 4 where it names none.
func quorumLevel(m *message) int {
	if !m.hasPriority {
		return 4
	}
	return min(int(m.priority), quorumLevels-1)
}

func (q *queue) readOverflow(v any) string {
	switch v {
	case "drop-head":
		q.overflow = dropHead
	case "reject-publish":
		q.overflow = rejectPublish
	case "reject-publish-dlx":
		if !q.quorum { // which takes it, and drops its head all the same
			q.overflow = rejectPublishDLX
		}
	default:
		return "invalid_overflow"
	}
	return ""
}

func notInteger(v any) string {
	return fmt.Sprintf("\"expected integer, got %s\"", typeName(v))
}

// number reads an integer of 0 to most.
func number(v any, most int64) (n int64, reason string) {
	n, ok := amqp.Int(v)
	switch {
	case !ok:
		return -1, notInteger(v)
	case n < 0:
		return -1, fmt.Sprintf("{value_negative,%d}", n)
	case n > most:
		return -1, fmt.Sprintf("{value_too_big,%d}", n)
	}
	return n, ""
}

// equivalent refuses a declaration that differs from what there is.
func (q *queue) equivalent(o *queue) *exception {
	switch {
	case q.durable != o.durable:
		return inequivalent("durable", q.text(), boolText(o.durable), boolText(q.durable))
	case q.autoDelete != o.autoDelete:
		return inequivalent("auto_delete", q.text(), boolText(o.autoDelete), boolText(q.autoDelete))
	}
	keys := slices.Clone(q.knownArgs())
	slices.SortFunc(keys, func(a, b string) int { // the type is what a user wants to hear of first
		if (a == "x-queue-type") != (b == "x-queue-type") {
			if a == "x-queue-type" {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return equivalentArgs(q.args, o.args, q.text(), keys)
}
