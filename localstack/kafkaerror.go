package localstack

import (
	"encoding/binary"
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafkaError makes the response frame that refuses a request with an error code.
func kafkaError(req kmsg.Request, corr int32, code int, brokers []string) []byte {
	if code == 0 {
		code = -1
	}
	resp := req.ResponseKind()
	refuseAll(reflect.ValueOf(resp).Elem(), reflect.ValueOf(req).Elem(), int64(code))
	if m, ok := resp.(*kmsg.MetadataResponse); ok {
		m.Brokers = metadataBrokers(brokers) // a client that learns of no broker is lost
	}
	frame := make([]byte, 8, 64)
	if resp.IsFlexible() && resp.Key() != keyAPIVersions {
		frame = append(frame, 0) // no tagged fields
	}
	frame = resp.AppendTo(frame)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	binary.BigEndian.PutUint32(frame[4:], uint32(corr))
	return frame
}

// refuseAll gives a response the shape of its request, for in this protocol they
// mirror each other: an entry for each topic, partition, group or resource that
// was asked for, under the same names. It puts the code in the innermost entries,
// or at the top if there are none, as brokers do, and says whether it put one.
func refuseAll(resp, req reflect.Value, code int64) bool {
	inner := false
	for n := range resp.NumField() {
		field, name := resp.Field(n), resp.Type().Field(n).Name
		if name == "UnknownTags" || name == "Version" {
			continue
		}
		from := req.FieldByName(name)
		if alias, ok := requestAlias[name]; ok && (!from.IsValid() || from.Len() == 0) {
			from = req.FieldByName(alias)
		}
		if !from.IsValid() {
			continue
		}
		if field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct {
			if from.Kind() == reflect.Slice && refuseEach(field, from, code) {
				inner = true
			}
			continue
		}
		assign(field, from)
	}
	if inner {
		return true
	}
	if field := resp.FieldByName("ErrorCode"); field.IsValid() && field.CanInt() {
		field.SetInt(code)
		return true
	}
	return false
}

// requestAlias has the request's name of a list, where it differs.
var requestAlias = map[string]string{"Topics": "TopicNames", "Coordinators": "CoordinatorKeys"}

func refuseEach(list, from reflect.Value, code int64) bool {
	put := false
	list.Set(reflect.MakeSlice(list.Type(), from.Len(), from.Len()))
	for n := range from.Len() {
		entry, asked := list.Index(n), from.Index(n)
		if d, ok := entry.Addr().Interface().(interface{ Default() }); ok {
			d.Default()
		}
		if asked.Kind() == reflect.Struct {
			put = refuseAll(entry, asked, code) || put
			continue
		}
		// The request lists bare names or numbers, which are the entry's key.
		for _, key := range []string{"Partition", "Topic", "Group", "Key"} {
			if field := entry.FieldByName(key); field.IsValid() && assign(field, asked) {
				break
			}
		}
		if field := entry.FieldByName("ErrorCode"); field.IsValid() && field.CanInt() {
			field.SetInt(code)
			put = true
		}
	}
	return put
}

// assign copies a value between fields of the same type, of which one may be a
// pointer to it.
func assign(to, from reflect.Value) bool {
	switch {
	case to.Type() == from.Type():
		to.Set(from)
	case to.Kind() == reflect.Pointer && to.Type().Elem() == from.Type():
		to.Set(reflect.New(from.Type()))
		to.Elem().Set(from)
	case from.Kind() == reflect.Pointer && from.Type().Elem() == to.Type() && !from.IsNil():
		to.Set(from.Elem())
	default:
		return false
	}
	return true
}
