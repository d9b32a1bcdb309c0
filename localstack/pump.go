package localstack

import "net"

// fate is what becomes of a frame.
type fate uint8

const (
	forward fate = iota
	drop
	dropAndCut // end the connection, without the frame
	flushFirst // pass on what came before this frame, then ask again
)

// pumpBuffer is what a direction of a link reads at a time, in bytes. It grows
// when a frame is larger.
const pumpBuffer = 64 << 10

// pump moves frames from one connection to a door until either ends, or the fate
// of a frame ends it. It reads large chunks and writes them on as they are; only
// where a frame is not to be forwarded is a chunk divided.
//
// step looks at the bytes read so far and returns the length of the first frame
// and its fate; 0 when the frame is not whole yet, -1 when this is not the
// protocol, in which case what came is passed on before the connection ends.
func pump(from net.Conn, to *door, step func([]byte) (int, fate)) {
	buf := make([]byte, pumpBuffer)
	for have := 0; ; {
		n, err := from.Read(buf[have:])
		have += n
		run, pos := 0, 0 // what is to go on, and the frame being looked at
		for pos < have {
			size, what := step(buf[pos:have])
			if size < 0 {
				to.write(buf[run:have])
				return
			}
			if size == 0 {
				break
			}
			next := pos + size
			switch what {
			case drop, flushFirst:
				if !to.write(buf[run:pos]) {
					return
				}
				if run = next; what == flushFirst {
					run = pos
					continue
				}
			case dropAndCut:
				to.write(buf[run:pos])
				to.link.cut()
				return
			}
			pos = next
		}
		if !to.write(buf[run:pos]) || err != nil {
			return
		}
		have = copy(buf, buf[pos:have])
		if have == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
	}
}
