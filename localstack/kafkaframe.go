package localstack

import (
	"encoding/binary"
	"reflect"

	"github.com/onceline/onceline/localstack/fault"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Keys of the APIs that the proxy treats in a way of their own.
const (
	keyProduce          = int16(kmsg.Produce)
	keyFetch            = int16(kmsg.Fetch)
	keyMetadata         = int16(kmsg.Metadata)
	keyOffsetCommit     = int16(kmsg.OffsetCommit)
	keyHeartbeat        = int16(kmsg.Heartbeat)
	keySASLHandshake    = int16(kmsg.SASLHandshake)
	keyAPIVersions      = int16(kmsg.ApiVersions)
	keyCreateTopics     = int16(kmsg.CreateTopics)
	keyAlterConfigs     = int16(kmsg.IncrementalAlterConfigs)
	keyTxnOffsetCommit  = int16(kmsg.TxnOffsetCommit)
	keySASLAuthenticate = int16(kmsg.SASLAuthenticate)
	keyConsumerBeat     = int16(kmsg.ConsumerGroupHeartbeat)
	keyShareBeat        = int16(kmsg.ShareGroupHeartbeat)
	keyShareFetch       = int16(kmsg.ShareFetch)
	keyShareAcknowledge = int16(kmsg.ShareAcknowledge)
)

// kafkaMaxFrame bounds a frame in bytes; beyond it a connection does not speak
// Kafka. It is the default of the broker's socket.request.max.bytes.
const kafkaMaxFrame = 100 << 20

// Sizes in bytes of the fixed part of a request, and of a response.
const (
	kafkaHeader         = 8 // key, version, correlation ID
	kafkaResponseHeader = 4 // correlation ID
)

// kafkaFrameSize returns the length of the first frame of b with its length
// prefix: 0 when it is not whole yet, -1 when it is none.
func kafkaFrameSize(b []byte, atLeast int) int {
	if len(b) < 4 {
		return 0
	}
	n := int(int32(binary.BigEndian.Uint32(b)))
	if n < atLeast || n > kafkaMaxFrame {
		return -1
	}
	if len(b) < 4+n {
		return 0
	}
	return 4 + n
}

// kafkaRequest is a request frame and, once it was needed, its decoded form.
type kafkaRequest struct {
	key, version int16
	corr         int32
	body         []byte // after the header; nil if the header is malformed
	decoded      kmsg.Request
	tried        bool
}

// parseKafkaRequest reads the header of a whole frame.
func parseKafkaRequest(frame []byte) kafkaRequest {
	r := kafkaRequest{
		key:     int16(binary.BigEndian.Uint16(frame[4:])),
		version: int16(binary.BigEndian.Uint16(frame[6:])),
		corr:    int32(binary.BigEndian.Uint32(frame[8:])),
	}
	b := frame[12:]
	if len(b) < 2 {
		return r
	}
	client := int(int16(binary.BigEndian.Uint16(b)))
	b = b[2:]
	if client > 0 {
		if len(b) < client {
			return r
		}
		b = b[client:]
	}
	r.body = b
	return r
}

// decode returns the request's body decoded, or nil if that is impossible.
func (r *kafkaRequest) decode() kmsg.Request {
	if r.tried {
		return r.decoded
	}
	r.tried = true
	req := kmsg.RequestForKey(r.key)
	if req == nil || r.body == nil {
		return nil
	}
	req.SetVersion(r.version)
	body := r.body
	if req.IsFlexible() {
		if body = skipTags(body); body == nil {
			return nil
		}
	}
	if req.ReadFrom(body) != nil {
		return nil
	}
	r.decoded = req
	return req
}

// answered says whether the broker will answer the request, which it does not
// for a produce with acks=0. It reads no more of the body than it must, for it
// is asked for every produce.
func (r *kafkaRequest) answered() bool {
	if r.key != keyProduce {
		return true
	}
	b := r.body
	if r.version >= 9 {
		if b = skipTags(b); b == nil {
			return true
		}
		n, k := binary.Uvarint(b)
		if k <= 0 || n > uint64(len(b)) {
			return true
		}
		b = b[k:]
		if n > 1 { // length + 1 of the transactional ID
			b = b[min(int(n)-1, len(b)):]
		}
	} else if r.version >= 3 {
		if len(b) < 2 {
			return true
		}
		n := int(int16(binary.BigEndian.Uint16(b)))
		b = b[2:]
		if n > 0 {
			b = b[min(n, len(b)):]
		}
	}
	return len(b) < 2 || binary.BigEndian.Uint16(b) != 0
}

// skipTags steps over a section of tagged fields; nil if it is malformed.
func skipTags(b []byte) []byte {
	count, k := binary.Uvarint(b)
	if k <= 0 {
		return nil
	}
	b = b[k:]
	for ; count > 0; count-- {
		if _, k = binary.Uvarint(b); k <= 0 { // the tag's number
			return nil
		}
		b = b[k:]
		size, k := binary.Uvarint(b)
		if k <= 0 || size > uint64(len(b)-k) {
			return nil
		}
		b = b[k+int(size):]
	}
	return b
}

// ops returns the classes of a request.
func (r *kafkaRequest) ops() fault.Ops {
	switch r.key {
	case keyProduce:
		return Publish.Ops()
	case keyFetch:
		return Receive.Ops()
	case keyShareFetch:
		if req, ok := r.decode().(*kmsg.ShareFetchRequest); ok && carriesAcks(req) {
			return Receive.Ops() | Settle.Ops()
		}
		return Receive.Ops()
	case keyOffsetCommit, keyTxnOffsetCommit, keyShareAcknowledge:
		return Settle.Ops()
	case keyAPIVersions, keySASLHandshake, keySASLAuthenticate, keyHeartbeat, keyConsumerBeat, keyShareBeat:
		return 0
	}
	return Admin.Ops()
}

func carriesAcks(req *kmsg.ShareFetchRequest) bool {
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			if len(req.Topics[i].Partitions[j].AcknowledgementBatches) > 0 {
				return true
			}
		}
	}
	return false
}

// decodeKafkaResponse decodes a whole response frame; nil if that is impossible.
func decodeKafkaResponse(frame []byte, key, version int16) kmsg.Response {
	resp := kmsg.ResponseForKey(key)
	if resp == nil {
		return nil
	}
	resp.SetVersion(version)
	body := frame[8:]
	if resp.IsFlexible() && key != keyAPIVersions {
		if body = skipTags(body); body == nil {
			return nil
		}
	}
	if resp.ReadFrom(body) != nil {
		return nil
	}
	return resp
}

// names says whether a request or response names an entity: whether any string
// in it equals the name, or any topic ID in it resolves to it. Record batches
// are byte slices and are not looked into.
func names(msg any, entity string, topic func([16]byte) string) bool {
	return namesValue(reflect.ValueOf(msg), entity, topic)
}

var (
	uuidType = reflect.TypeFor[[16]byte]()
	tagsType = reflect.TypeFor[kmsg.Tags]()
)

func namesValue(v reflect.Value, entity string, topic func([16]byte) string) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return !v.IsNil() && namesValue(v.Elem(), entity, topic)
	case reflect.String:
		return v.String() == entity
	case reflect.Array:
		return v.Type() == uuidType && topic(v.Interface().([16]byte)) == entity
	case reflect.Slice:
		switch v.Type().Elem().Kind() {
		case reflect.Struct, reflect.String, reflect.Pointer, reflect.Array:
			for i := range v.Len() {
				if namesValue(v.Index(i), entity, topic) {
					return true
				}
			}
		}
	case reflect.Struct:
		if v.Type() == tagsType {
			return false
		}
		for i := range v.NumField() {
			if namesValue(v.Field(i), entity, topic) {
				return true
			}
		}
	}
	return false
}

// refused says whether a response carries an error code other than 0 anywhere.
func refused(msg any) bool { return refusedValue(reflect.ValueOf(msg)) }

func refusedValue(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && refusedValue(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			for i := range v.Len() {
				if refusedValue(v.Index(i)) {
					return true
				}
			}
		}
	case reflect.Struct:
		if v.Type() == tagsType {
			return false
		}
		for i := range v.NumField() {
			switch v.Type().Field(i).Name {
			case "ErrorCode", "AcknowledgeErrorCode":
				if v.Field(i).CanInt() && v.Field(i).Int() != 0 {
					return true
				}
			default:
				if refusedValue(v.Field(i)) {
					return true
				}
			}
		}
	}
	return false
}

// carriesRecords says whether a Fetch or ShareFetch response hands out records.
func carriesRecords(resp kmsg.Response) bool {
	switch r := resp.(type) {
	case *kmsg.FetchResponse:
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				if len(r.Topics[i].Partitions[j].RecordBatches) > 0 {
					return true
				}
			}
		}
	case *kmsg.ShareFetchResponse:
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				if len(r.Topics[i].Partitions[j].AcquiredRecords) > 0 {
					return true
				}
			}
		}
	}
	return false
}
