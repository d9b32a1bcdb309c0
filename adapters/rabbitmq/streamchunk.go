package rabbitmq

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4"

	"github.com/onceline/onceline/broker"
)

// chunkReader makes entries of a chunk's data.
type chunkReader struct {
	entries []streamEntry
	next    uint64 // offset
}

// maxUncompressed bounds what one compressed entry may become, in bytes.
const maxUncompressed = 1 << 30

// read reads n records. Within a batch that a producer put together there are
// plain messages only.
func (r *chunkReader) read(data []byte, n int, within bool) error {
	if r.entries == nil {
		r.entries = make([]streamEntry, 0, min(n, len(data)/4+1))
	}
	for n > 0 {
		if len(data) < 4 {
			return fmt.Errorf("%w: a chunk ends before its records", errFrame)
		}
		if data[0]&0x80 != 0 && !within {
			size, records, err := r.batch(data)
			if err != nil {
				return err
			}
			data, n = data[size:], n-records
			continue
		}
		size := int(binary.BigEndian.Uint32(data))
		if size < 0 || size > len(data)-4 {
			return fmt.Errorf("%w: a message ends behind its chunk", errFrame)
		}
		r.entries = append(r.entries, streamEntry{offset: r.next, raw: data[4 : 4+size : 4+size]})
		r.next++
		data, n = data[4+size:], n-1
	}
	return nil
}

// batch reads an entry with several messages, and returns its size.
func (r *chunkReader) batch(data []byte) (size, records int, err error) {
	c := streamCursor{b: data}
	codec := c.u8() >> 4 & 7
	records = int(c.u16())
	full := int(c.u32())
	packed := c.bytes()
	if c.bad || records == 0 || full > maxUncompressed {
		return 0, 0, fmt.Errorf("%w: an entry of several messages", errFrame)
	}
	size = len(data) - len(c.b)
	plain := packed
	if codec != 0 {
		if plain, err = unpack(codec, packed, full); err != nil {
			return 0, 0, err
		}
	}
	return size, records, r.read(plain, records, true)
}

// unpack decompresses what a foreign producer compressed.
func unpack(codec byte, packed []byte, full int) ([]byte, error) {
	var in io.Reader = bytes.NewReader(packed)
	var err error
	switch codec {
	case 1:
		in, err = gzip.NewReader(in)
	case 2:
		in = snappy.NewReader(in)
	case 3:
		in = lz4.NewReader(in)
	case 4:
		var z *zstd.Decoder
		if z, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUncompressed)); err == nil {
			defer z.Close()
			in = z
		}
	default:
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "a batch with compression %d", codec)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	var out bytes.Buffer
	if n, err := io.Copy(&out, io.LimitReader(in, int64(full)+1)); err != nil || n != int64(full) {
		return nil, fmt.Errorf("%w: a compressed batch has %d bytes of %d: %w", errFrame, n, full, err)
	}
	return out.Bytes(), nil
}
