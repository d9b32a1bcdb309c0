package localstack

import "bytes"

// natsFrame is one frame of the NATS client protocol. Its slices point into the
// reader's buffer and are valid until the next read.
type natsFrame struct {
	verb    natsVerb
	subject []byte // PUB, HPUB, MSG, HMSG, SUB
	reply   []byte // PUB, HPUB, MSG, HMSG; nil if there is none
	sid     []byte // MSG, HMSG, SUB, UNSUB
	header  []byte // HPUB, HMSG
	payload []byte // PUB, HPUB, MSG, HMSG
}

type natsVerb uint8

// The verbs that the proxy needs to know; all others pass as natsOther.
const (
	natsOther natsVerb = iota
	natsPub
	natsHPub
	natsMsg
	natsHMsg
	natsSub
	natsUnsub
)

// natsMaxLine bounds a control line. The server's own bound is 4 KiB, its INFO
// may be longer.
const natsMaxLine = 1 << 20

// parseNATS reads the first frame of b into f and returns its length: 0 when b
// does not hold a whole frame yet, -1 when b is not the protocol.
func parseNATS(b []byte, f *natsFrame) int {
	eol := bytes.IndexByte(b, '\n')
	if eol < 0 {
		if len(b) > natsMaxLine {
			return -1
		}
		return 0
	}
	*f = natsFrame{}
	line := b[:eol]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	f.verb = natsVerbOf(line)
	if f.verb == natsOther {
		return eol + 1
	}
	var args [6][]byte
	n := splitArgs(line, &args)
	sizes := 0 // trailing sizes of what follows the line
	switch f.verb {
	case natsSub: // SUB subject [queue] sid
		if n < 3 {
			return -1
		}
		f.subject, f.sid = args[1], args[n-1]
		return eol + 1
	case natsUnsub: // UNSUB sid [max]
		if n < 2 {
			return -1
		}
		f.sid = args[1]
		return eol + 1
	case natsPub, natsMsg: // PUB subject [reply] size, MSG subject sid [reply] size
		sizes = 1
	case natsHPub, natsHMsg: // the same with two sizes: of the header, and of both
		sizes = 2
	}
	fixed := 1
	if f.verb == natsMsg || f.verb == natsHMsg {
		fixed = 2
	}
	switch n - 1 - sizes - fixed {
	case 0:
	case 1:
		f.reply = args[1+fixed]
	default:
		return -1
	}
	f.subject = args[1]
	if fixed == 2 {
		f.sid = args[2]
	}
	total := atoi(args[n-1])
	head := 0
	if sizes == 2 {
		head = atoi(args[n-2])
	}
	if total < 0 || head < 0 || head > total {
		return -1
	}
	end := eol + 1 + total
	if len(b) < end+2 {
		return 0
	}
	f.header, f.payload = b[eol+1:eol+1+head], b[eol+1+head:end]
	return end + 2
}

func natsVerbOf(line []byte) natsVerb {
	if len(line) < 4 {
		return natsOther
	}
	end := bytes.IndexAny(line, " \t")
	if end < 3 || end > 5 {
		return natsOther
	}
	// The protocol's verbs are case-insensitive; clients send capitals.
	switch w := line[:end]; {
	case bytes.EqualFold(w, []byte("PUB")):
		return natsPub
	case bytes.EqualFold(w, []byte("HPUB")):
		return natsHPub
	case bytes.EqualFold(w, []byte("MSG")):
		return natsMsg
	case bytes.EqualFold(w, []byte("HMSG")):
		return natsHMsg
	case bytes.EqualFold(w, []byte("SUB")):
		return natsSub
	case bytes.EqualFold(w, []byte("UNSUB")):
		return natsUnsub
	}
	return natsOther
}

// splitArgs splits a control line at blanks and returns the number of fields, at
// most one more than fit.
func splitArgs(line []byte, args *[6][]byte) int {
	n, start := 0, -1
	for i := 0; i <= len(line); i++ {
		if i == len(line) || line[i] == ' ' || line[i] == '\t' {
			if start >= 0 {
				if n == len(args) {
					return n + 1
				}
				args[n] = line[start:i]
				n++
				start = -1
			}
		} else if start < 0 {
			start = i
		}
	}
	return n
}

// atoi reads a decimal size; -1 if it is none or absurdly large.
func atoi(b []byte) int {
	if len(b) == 0 || len(b) > 9 {
		return -1
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// subjectMatches says whether a subscription's pattern covers a subject.
func subjectMatches(pattern string, subject []byte) bool {
	for {
		pt, pr, pmore := cutToken(pattern)
		if pt == ">" && !pmore {
			return len(subject) > 0
		}
		st, sr, smore := cutToken(subject)
		if pt != "*" && pt != string(st) {
			return false
		}
		if !pmore || !smore {
			return pmore == smore
		}
		pattern, subject = pr, sr
	}
}

func cutToken[T string | []byte](s T) (token, rest T, more bool) {
	for i := 0; i < len(s); i++ {
		if s[i] == '.' {
			return s[:i], s[i+1:], true
		}
	}
	return s, s[:0], false
}
