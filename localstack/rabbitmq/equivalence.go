package rabbitmq

import (
	"fmt"
	"strconv"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// inequivalent refuses a declaration of what exists with another property
// (RMQ-F-30).
func inequivalent(arg, what, received, current string) *exception {
	return refuse(amqp.PreconditionFailed, "inequivalent arg '%s' for %s: received %s but current is %s", arg, what, received, current)
}

func boolText(b bool) string { return "'" + strconv.FormatBool(b) + "'" }

// equivalentArgs compares the arguments named keys. Integers are compared by
// value, whatever their width; an absent queue type is classic.
func equivalentArgs(have, want amqp.Table, what string, keys []string) *exception {
	for _, key := range keys {
		h, hok := have.Get(key)
		w, wok := want.Get(key)
		if hok == wok && (!hok || sameValue(h, w)) {
			continue
		}
		if key == "x-queue-type" && (!hok && w == "classic" || !wok && h == "classic") {
			continue
		}
		if hok && wok {
			return inequivalent(key, what, fmt.Sprintf("'%v'", w), fmt.Sprintf("'%v'", h))
		}
		return inequivalent(key, what, argText(w, wok), argText(h, hok))
	}
	return nil
}

func argText(v any, ok bool) string {
	if !ok {
		return "none"
	}
	if s, ok := v.(string); ok {
		return "the value '" + s + "' of type 'longstr'"
	}
	return fmt.Sprintf("the value '%v' of type '%s'", v, typeName(v))
}

// typeName is a field type's name in RabbitMQ's errors.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "void"
	case bool:
		return "bool"
	case int8:
		return "byte"
	case uint8:
		return "unsignedbyte"
	case int16:
		return "short"
	case uint16:
		return "unsignedshort"
	case int32:
		return "signedint"
	case uint32:
		return "unsignedint"
	case int64:
		return "long"
	case float32:
		return "float"
	case float64:
		return "double"
	case amqp.Decimal:
		return "decimal"
	case amqp.Timestamp:
		return "timestamp"
	case []byte:
		return "binary"
	case []any:
		return "array"
	case amqp.Table:
		return "table"
	}
	return "longstr"
}
