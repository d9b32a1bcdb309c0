package pipeline

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/onceline/onceline/dedup"
)

// Place is where a pipeline stands in one partition of a source.
type Place struct {
	Source    string // Source.Name
	Epoch     string // Source.Epoch
	Partition string
	Offset    uint64 // of the next message
}

// record is one checkpoint: what a later process needs to go on as if this one had
// never ended.
type record struct {
	pipeline string
	number   int64
	opened   time.Time // when the first message since the checkpoint before was read
	from     []Place   // where the sources stood before this checkpoint's input
	next     []Place   // and behind it
	input    uint64    // messages since the checkpoint before
	output   uint64
	state    Snapshot
	kind     string // of the sink
	inStore  bool   // effects are in the record's own transaction
	token    []byte // what the sink has prepared; nil: nothing that needs a commit
}

// A record begins with a magic and a version, and ends with the SHA-256 of all that
// comes before. Texts and bytes have their length before them, numbers are varints.
const (
	recordMagic   = "OLCP"
	recordVersion = 1
)

// encode writes the record in the newest version.
func (r *record) encode() []byte {
	b := append([]byte(recordMagic), recordVersion)
	text := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	number := func(n uint64) { b = binary.AppendUvarint(b, n) }
	flag := func(on bool) {
		if on {
			number(1)
		} else {
			number(0)
		}
	}
	places := func(ps []Place) {
		number(uint64(len(ps)))
		for _, p := range ps {
			text(p.Source)
			text(p.Epoch)
			text(p.Partition)
			number(p.Offset)
		}
	}
	text(r.pipeline)
	number(uint64(r.number))
	number(uint64(r.opened.UnixMicro()))
	places(r.from)
	places(r.next)
	number(r.input)
	number(r.output)
	flag(r.state.Data != nil)
	number(uint64(r.state.Version))
	text(string(r.state.Data))
	text(r.kind)
	flag(r.inStore)
	flag(r.token != nil)
	text(string(r.token))
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// decode reads the record of a row. Its errors are ErrCorrupt: what was committed
// can't be told from it, and to go on from an older one would make output twice.
func decode(name string, row *dedup.CheckpointRow) (*record, error) {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: checkpoint %d of %s: %s", ErrCorrupt, row.Number, name, fmt.Sprintf(format, a...))
	}
	b := row.Data
	if len(b) < len(recordMagic)+1+sha256.Size || string(b[:len(recordMagic)]) != recordMagic {
		return nil, bad("not a record")
	}
	if v := b[len(recordMagic)]; v != recordVersion {
		return nil, bad("version %d, and this program knows %d alone: run the program that wrote it", v, recordVersion)
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if want := sha256.Sum256(body); !bytes.Equal(sum, want[:]) {
		return nil, bad("its checksum is wrong")
	}
	d := decoder{rest: body[len(recordMagic)+1:]}
	r := &record{pipeline: d.text(), number: int64(d.number())}
	r.opened = time.UnixMicro(int64(d.number()))
	r.from, r.next = d.places(), d.places()
	r.input, r.output = d.number(), d.number()
	has := d.flag()
	r.state = Snapshot{Version: uint32(d.number()), Data: d.bytes(has)}
	r.kind, r.inStore = d.text(), d.flag()
	has = d.flag()
	r.token = d.bytes(has)
	switch {
	case d.broken || len(d.rest) > 0:
		return nil, bad("it is cut short, or too long")
	case r.pipeline != name || r.number != row.Number:
		return nil, bad("it is that of checkpoint %d of %s", r.number, r.pipeline)
	}
	return r, nil
}

// decoder reads what encode wrote; broken says that something was cut short.
type decoder struct {
	rest   []byte
	broken bool
}

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 {
		d.broken, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) text() string {
	n := d.number()
	if n > uint64(len(d.rest)) {
		d.broken, d.rest = true, nil
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

// bytes returns nil where the flag before said so.
func (d *decoder) bytes(has bool) []byte {
	s := d.text()
	if !has {
		d.broken = d.broken || s != ""
		return nil
	}
	return []byte(s)
}

func (d *decoder) flag() bool {
	n := d.number()
	d.broken = d.broken || n > 1
	return n == 1
}

func (d *decoder) places() []Place {
	n := d.number()
	if n > uint64(len(d.rest))/4 { // each has four lengths or numbers at least
		d.broken = true
		return nil
	}
	ps := make([]Place, n)
	for i := range ps {
		ps[i] = Place{Source: d.text(), Epoch: d.text(), Partition: d.text(), Offset: d.number()}
	}
	return ps
}
