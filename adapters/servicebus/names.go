package servicebus

import (
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/onceline/onceline/broker"
)

// deadLetterSuffix names the dead-letter sub-queue of a queue or subscription.
const deadLetterSuffix = "/$deadletterqueue"

// source is where a receiver takes from: a queue, or a subscription of a topic,
// or the dead-letter sub-queue of either.
type source struct {
	queue        string // or
	topic        string // with
	subscription string
	dead         bool
}

// parseSource reads a subscription's name: QUEUE, TOPIC/SUBSCRIPTION or
// TOPIC/Subscriptions/SUBSCRIPTION, each with /$deadletterqueue behind it for its
// dead letters. A queue's own name may have slashes too (its path): then the form
// with Subscriptions tells them apart, and a name with one slash is a topic's.
func parseSource(name string) (s source, err error) {
	rest := name
	if i := len(rest) - len(deadLetterSuffix); i >= 0 && strings.EqualFold(rest[i:], deadLetterSuffix) {
		s.dead, rest = true, rest[:i]
	}
	bad := func() (source, error) {
		return source{}, broker.Errorf(broker.ErrInvalid, nil,
			"subscription %q: want QUEUE or TOPIC/SUBSCRIPTION, and /$deadletterqueue behind it for its dead letters", name)
	}
	parts := strings.Split(rest, "/")
	switch {
	case len(parts) == 1:
		s.queue = parts[0]
	case len(parts) == 2:
		s.topic, s.subscription = parts[0], parts[1]
	case strings.EqualFold(parts[len(parts)-2], "subscriptions"):
		s.topic, s.subscription = strings.Join(parts[:len(parts)-2], "/"), parts[len(parts)-1]
	default:
		s.queue = rest
	}
	switch {
	case s.queue != "" && validPath(s.queue, 260):
	case s.topic != "" && validPath(s.topic, 260) && validPath(s.subscription, 50):
	default:
		return bad()
	}
	return s, nil
}

// checkTopic reports whether topic can name a queue or topic to send to.
func checkTopic(topic string) error {
	if !validPath(topic, 260) {
		return broker.Errorf(broker.ErrInvalid, nil, "topic %q: want letters, digits, '.', '-', '_' and '/' between them, at most 260", topic)
	}
	return nil
}

// validPath reports whether the service takes a name: letters, digits, dots,
// hyphens, underscores and slashes, with a letter or digit at both ends.
func validPath(name string, max int) bool {
	if name == "" || len(name) > max || strings.Contains(name, "//") {
		return false
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		word := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
		if !word && (i == 0 || i == len(name)-1 || (c != '.' && c != '-' && c != '/')) {
			return false
		}
	}
	return true
}

// open makes a receiver of the SDK. It doesn't touch the network.
func (s *source) open(client *azservicebus.Client) (*azservicebus.Receiver, error) {
	o := &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModePeekLock}
	if s.dead {
		o.SubQueue = azservicebus.SubQueueDeadLetter
	}
	if s.queue != "" {
		return client.NewReceiverForQueue(s.queue, o)
	}
	return client.NewReceiverForSubscription(s.topic, s.subscription, o)
}
