package pubsub

import (
	"strings"
	"time"
	"unicode/utf8"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// The service's limits.
const (
	maxMessages = 1000       // of a publish request (PS-F-05)
	maxPublish  = 10_000_000 // bytes of a publish request (PS-F-05)
	maxAttrs    = 100        // attributes of a message (PS-F-35)
	maxAttrKey  = 256        // bytes
	maxAttr     = 1024       // bytes of a value
	maxKey      = 1024       // bytes of an ordering key (PS-F-20)
	maxPull     = 1000       // messages of an answer; the service hands out fewer than asked as it likes

	minDeadline, maxDeadline = 10, 600 // seconds (PS-F-09)

	minRetention, maxRetention = 10 * time.Minute, 31 * 24 * time.Hour // PS-F-24
	defaultRetention           = 7 * 24 * time.Hour

	minAttempts, maxAttempts = 5, 100 // PS-F-27

	maxBackoff                           = 600 * time.Second // PS-F-28
	defaultMinBackoff, defaultMaxBackoff = 10 * time.Second, 600 * time.Second
)

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// checkName holds a full name against projects/PROJECT/KIND/ID (PS-F-39).
func checkName(kind, name string) error {
	bad := invalid("Invalid [%s] name: (name=%s)", kind, name)
	parts := strings.Split(name, "/")
	if len(parts) != 4 || parts[0] != "projects" || parts[1] == "" || parts[2] != kind {
		return bad
	}
	id := parts[3]
	if len(id) < 3 || len(id) > 255 || strings.HasPrefix(id, "goog") || !letter(id[0]) {
		return bad
	}
	for i := 0; i < len(id); i++ {
		if c := id[i]; !letter(c) && (c < '0' || c > '9') && !strings.ContainsRune("-_.~+%", rune(c)) {
			return bad
		}
	}
	return nil
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// projectOf is the project in a full name that checkName passed, idOf the ID.
func projectOf(name string) string { return strings.Split(name, "/")[1] }

func idOf(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// checkPublish holds a publish request against the limits: it is taken or
// refused as a whole.
func checkPublish(r *pb.PublishRequest) error {
	switch {
	case len(r.Messages) == 0:
		return invalid("No messages to publish")
	case len(r.Messages) > maxMessages:
		return invalid("Too many messages to publish")
	case proto.Size(r) > maxPublish:
		return invalid("Request payload size exceeds the limit: %d bytes.", maxPublish)
	}
	for _, m := range r.Messages {
		switch {
		case m == nil || len(m.Data) == 0 && len(m.Attributes) == 0:
			return invalid("Some messages are empty")
		case len(m.OrderingKey) > maxKey:
			return invalid("The ordering key has %d bytes, over %d", len(m.OrderingKey), maxKey)
		case m.OrderingKey != r.Messages[0].OrderingKey:
			return invalid("In a single publish request, all messages must have no ordering key or they must all have the same ordering key")
		case len(m.Attributes) > maxAttrs:
			return invalid("A message has %d attributes, over %d", len(m.Attributes), maxAttrs)
		}
		for k, v := range m.Attributes {
			switch {
			case k == "" || len(k) > maxAttrKey || strings.HasPrefix(k, "goog"):
				return invalid("The attribute key %q is empty, over %d bytes, or begins with goog", k, maxAttrKey)
			case len(v) > maxAttr:
				return invalid("The value of attribute %q has %d bytes, over %d", k, len(v), maxAttr)
			case !utf8.ValidString(k) || !utf8.ValidString(v):
				return invalid("The attribute %q is not UTF-8", k)
			}
		}
	}
	return nil
}

// checkDeadline holds the seconds of a lease against the limits.
func checkDeadline(seconds int32) error {
	if seconds < minDeadline || seconds > maxDeadline {
		return invalid("ack_deadline_secs out of bounds")
	}
	return nil
}

func checkRetention(d *durationpb.Duration) error {
	if d == nil {
		return nil
	}
	if t := d.AsDuration(); t < minRetention || t > maxRetention {
		return invalid("message_retention_duration out of bounds")
	}
	return nil
}

func checkDeadLetter(p *pb.DeadLetterPolicy) error {
	switch {
	case p == nil || p.MaxDeliveryAttempts == 0:
		return nil
	case p.MaxDeliveryAttempts < minAttempts:
		return status.Errorf(codes.OutOfRange, "The value for max_delivery_attempts is too small. You passed %d in the request, but the minimum value is %d.", p.MaxDeliveryAttempts, minAttempts)
	case p.MaxDeliveryAttempts > maxAttempts:
		return status.Errorf(codes.OutOfRange, "The value for max_delivery_attempts is too large. You passed %d in the request, but the maximum value is %d.", p.MaxDeliveryAttempts, maxAttempts)
	}
	return nil
}

func checkRetry(p *pb.RetryPolicy) error {
	if p == nil {
		return nil
	}
	low, high := backoffs(p)
	for _, x := range []struct {
		name string
		d    time.Duration
	}{{"minimum_backoff", low}, {"maximum_backoff", high}} {
		if x.d < 0 || x.d > maxBackoff {
			return invalid("The value for %s is out of bounds. You passed %gs in the request, but the value must be between 0s and 600s.", x.name, x.d.Seconds())
		}
	}
	if low > high {
		return invalid("minimum_backoff is over maximum_backoff")
	}
	return nil
}

// backoffs are the bounds of a retry policy.
func backoffs(p *pb.RetryPolicy) (low, high time.Duration) {
	low, high = defaultMinBackoff, defaultMaxBackoff
	if p.MinimumBackoff != nil {
		low = p.MinimumBackoff.AsDuration()
	}
	if p.MaximumBackoff != nil {
		high = p.MaximumBackoff.AsDuration()
	}
	return low, high
}

func checkLabels(labels map[string]string) error {
	for k, v := range labels {
		if k == "" || len(k) > 63 || len(v) > 63 || k[0] < 'a' || k[0] > 'z' || !labelText(k) || !labelText(v) {
			return invalid("Invalid label %q: %q", k, v)
		}
	}
	return nil
}

func labelText(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
