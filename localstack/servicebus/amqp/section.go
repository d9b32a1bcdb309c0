package amqp

import "fmt"

// Pairs reads the entries of a map in their encodings.
type Pairs struct{ f Fields }

// ReadPairs begins to read a map; nil is an empty one.
func ReadPairs(raw Raw) (Pairs, error) {
	if raw == nil {
		return Pairs{}, nil
	}
	r := NewReader(raw)
	c, err := r.byte()
	if err != nil {
		return Pairs{}, err
	}
	p, err := r.payload(c)
	if err != nil {
		return Pairs{}, err
	}
	if c != codeMap8 && c != codeMap32 {
		return Pairs{}, fmt.Errorf("%w: constructor 0x%02x where a map should be", ErrSyntax, c)
	}
	f := Fields{r: Reader{p}}
	if f.n, err = f.r.count(c); err == nil && f.n%2 != 0 {
		err = fmt.Errorf("%w: a map of %d values", ErrSyntax, f.n)
	}
	return Pairs{f}, err
}

// Next returns the next entry: its key as text (nil if it is no string or symbol)
// and its value, both of which alias the buffer. It is false at the end and at an
// error, which [Pairs.Err] returns.
func (p *Pairs) Next() (key []byte, value Raw, ok bool) {
	if p.f.n == 0 || p.f.err != nil {
		return nil, nil, false
	}
	k, err := p.f.r.Raw()
	if err != nil {
		p.f.err = err
		return nil, nil, false
	}
	if value, err = p.f.r.Raw(); err != nil {
		p.f.err = err
		return nil, nil, false
	}
	p.f.n -= 2
	switch k[0] {
	case codeStr8, codeSym8:
		key = k[2:]
	case codeStr32, codeSym32:
		key = k[5:]
	}
	return key, value, true
}

// Err returns what was wrong with an entry read so far, or nil.
func (p *Pairs) Err() error { return p.f.err }

// AppendHeader appends a header section.
func AppendHeader(b []byte, h Header) []byte {
	b, at := beginComposite(b, sectionHeader)
	b = AppendBool(b, h.Durable)
	b = append(b, codeUbyte, h.Priority)
	if h.HasTTL {
		b = AppendUint(b, h.TTL)
	} else {
		b = append(b, codeNull)
	}
	b = AppendBool(b, h.FirstAcquirer)
	return endCompound(AppendUint(b, h.DeliveryCount), at, 5)
}

// MapWriter appends a map entry by entry.
type MapWriter struct {
	B     []byte // what has been appended
	at, n int
}

// BeginMap begins a map.
func BeginMap(b []byte) MapWriter {
	b, at := beginCompound(b, codeMap32)
	return MapWriter{B: b, at: at}
}

// BeginAnnotations begins a section of message annotations.
func BeginAnnotations(b []byte) MapWriter {
	return BeginMap(append(b, codeDescribed, codeSmallUlong, sectionAnnotations))
}

// BeginDeliveryAnnotations begins a section of delivery annotations.
func BeginDeliveryAnnotations(b []byte) MapWriter {
	return BeginMap(append(b, codeDescribed, codeSmallUlong, sectionDeliveryAnnotations))
}

// BeginApplication begins a section of application properties.
func BeginApplication(b []byte) MapWriter {
	return BeginMap(append(b, codeDescribed, codeSmallUlong, sectionApplication))
}

// Symbol appends an entry under a symbol, as annotations have them; the caller has
// appended the value to B when the next entry begins.
func (w *MapWriter) Symbol(key Symbol) {
	w.B = AppendSymbol(w.B, key)
	w.n += 2
}

// Text appends an entry under a string, as Symbol does.
func (w *MapWriter) Text(key string) {
	w.B = AppendString(w.B, key)
	w.n += 2
}

// Entries appends n entries in their encoding.
func (w *MapWriter) Entries(raw []byte, n int) {
	w.B = append(w.B, raw...)
	w.n += 2 * n
}

// End ends the map and returns the buffer.
func (w *MapWriter) End() []byte { return endCompound(w.B, w.at, w.n) }

// AppendProperties appends a properties section whose list is raw; an empty one
// for nil.
func AppendProperties(b []byte, raw Raw) []byte {
	b = append(b, codeDescribed, codeSmallUlong, sectionProperties)
	if raw == nil {
		return append(b, codeList0)
	}
	return append(b, raw...)
}

// AppendApplication appends a section of application properties whose map is raw;
// nothing for nil.
func AppendApplication(b []byte, raw Raw) []byte {
	if raw == nil {
		return b
	}
	return append(append(b, codeDescribed, codeSmallUlong, sectionApplication), raw...)
}

// AppendResponse appends the properties of an answer to the request whose message
// ID is correlation, in its encoding.
func AppendResponse(b []byte, correlation Raw) []byte {
	b, at := beginComposite(b, sectionProperties)
	b = append(b, codeNull, codeNull, codeNull, codeNull, codeNull)
	return endCompound(appendRaw(b, correlation), at, 6)
}

// AppendBody appends a body that is the value v.
func AppendBody(b []byte, v any) []byte {
	return AppendValue(append(b, codeDescribed, codeSmallUlong, sectionValue), v)
}
