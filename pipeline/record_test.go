package pipeline

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
)

func aRecord() *record {
	return &record{
		pipeline: "billing ü", number: 1 << 40, opened: time.UnixMicro(1_700_000_000_123_456),
		from:  []Place{{"orders/billing", "", "0", 0}, {"orders/billing", "e1", "11", 1<<64 - 1}},
		next:  []Place{{"orders/billing", "", "0", 17}},
		input: 17, output: 3, state: Snapshot{7, []byte("{}")}, kind: "transactional", inStore: true, token: []byte{0, 1, 2},
	}
}

func row(r *record) *dedup.CheckpointRow {
	return &dedup.CheckpointRow{Number: r.number, Data: r.encode()}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *record){
		"full":         func(*record) {},
		"no state":     func(r *record) { r.state = Snapshot{} },
		"empty state":  func(r *record) { r.state.Data = []byte{} },
		"no token":     func(r *record) { r.token = nil },
		"empty token":  func(r *record) { r.token = []byte{} },
		"no places":    func(r *record) { r.from, r.next = []Place{}, []Place{} },
		"large state":  func(r *record) { r.state.Data = bytes.Repeat([]byte("x"), 1<<20) },
		"not in store": func(r *record) { r.inStore = false },
	} {
		want := aRecord()
		change(want)
		got, err := decode(want.pipeline, row(want))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v: %v; want %+v", name, got, err, want)
		}
	}
}

// TestRecordCorrupt: no changed bit, no cut and no foreign row is taken for a record.
func TestRecordCorrupt(t *testing.T) {
	t.Parallel()
	good := row(aRecord())
	refused := func(what string, r *dedup.CheckpointRow) {
		t.Helper()
		if _, err := decode("billing ü", r); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range good.Data {
		for bit := range 8 {
			data := bytes.Clone(good.Data)
			data[i] ^= 1 << bit
			refused("a bit", &dedup.CheckpointRow{Number: good.Number, Data: data})
		}
		refused("cut", &dedup.CheckpointRow{Number: good.Number, Data: good.Data[:i]})
	}
	refused("longer", &dedup.CheckpointRow{Number: good.Number, Data: append(bytes.Clone(good.Data), 0)})
	refused("another number", &dedup.CheckpointRow{Number: 2, Data: good.Data})
	other := aRecord()
	other.pipeline = "another"
	refused("another pipeline's", row(other))
}

func FuzzRecord(f *testing.F) {
	f.Add(aRecord().encode())
	f.Add([]byte("OLCP\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		// What is behind the checksum, as somebody could make it who knows that.
		d := decoder{rest: data}
		d.places()
		d.bytes(d.flag())
		r, err := decode("billing ü", &dedup.CheckpointRow{Number: 1 << 40, Data: data})
		if err != nil {
			return
		}
		if again := r.encode(); !bytes.Equal(again, data) {
			t.Errorf("%x became %x", data, again)
		}
	})
}
