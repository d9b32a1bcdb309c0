package rabbitmq

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// exception is a refusal that ends a channel, or, for the codes that are not
// soft, the connection.
type exception struct {
	code   int
	text   string
	method amqp.Method // what was refused; 0 where no method was
}

// refuse makes an exception. Its text is RabbitMQ's: the code's name, a dash, and
// what is wrong (RMQ-F-30).
func refuse(code int, format string, args ...any) *exception {
	text := amqp.CodeName(code)
	if format != "" {
		text += " - " + fmt.Sprintf(format, args...)
	}
	if len(text) > 255 {
		text = text[:252] + "..."
	}
	return &exception{code: code, text: text}
}

func refuseNotFound(kind, name, vhost string) *exception {
	return refuse(amqp.NotFound, "no %s '%s' in vhost '%s'", kind, name, vhost)
}

// undecodable refuses a method whose fields can't be read. A field of a type that
// RabbitMQ doesn't know makes it hang up without a word.
func undecodable(fields []byte, err error) *exception {
	var unknown amqp.TypeError
	if errors.As(err, &unknown) {
		return &exception{}
	}
	return refuse(amqp.FrameErrorCode, "cannot decode %s", octets(fields))
}

// describe names a frame as RabbitMQ does where it makes no sense.
func describe(f amqp.Frame) string {
	which := "all"
	if len(f.Payload) > 16 {
		which, f.Payload = "first 16", f.Payload[:16]
	}
	text := octets(f.Payload)
	if len(f.Payload) > 0 && strings.IndexFunc(string(f.Payload), func(r rune) bool { return r < ' ' || r > '~' }) < 0 {
		text = "<<" + strconv.Quote(string(f.Payload)) + ">>"
	}
	return fmt.Sprintf("type %d, %s octets = %s", f.Type, which, text)
}

// octets writes bytes as Erlang does.
func octets(b []byte) string {
	var s strings.Builder
	s.WriteString("<<")
	for i, c := range b {
		if i > 0 {
			s.WriteByte(',')
		}
		s.WriteString(strconv.Itoa(int(c)))
	}
	return s.String() + ">>"
}
