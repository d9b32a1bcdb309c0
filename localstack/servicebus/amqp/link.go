package amqp

import "fmt"

// SessionFilterCode is the descriptor of the filter by which a Service Bus
// receiver asks for a session.
const SessionFilterCode = 0x137000000C

// SessionFilter is the name of that filter.
const SessionFilter = "com.microsoft:session-filter"

// The settle modes of a sender.
const (
	SenderUnsettled = 0
	SenderSettled   = 1
	SenderMixed     = 2
)

// Attach attaches a link. The encodings that it carries alias what was read; they
// are sent back as they came.
type Attach struct {
	Name             string
	Handle           uint32
	Role             bool
	SenderSettle     byte
	ReceiverSettle   byte
	Source, Target   Raw
	SourceAddress    string
	TargetAddress    string
	Coordinator      bool // the target is a coordinator of transactions
	SessionFilter    bool
	SessionID        *string // in the filter; nil asks for any session
	Timeout          uint32  // com.microsoft:timeout, ms; 0 if not given
	InitialCount     uint32
	MaxMessageSize   uint64
	Properties       Map
	NullTermini      bool // written: refuses the link
	described        any  // the descriptor of the filter's value, nil if it has none
	ResponseProperty Map  // written in place of Properties
}

// ReadAttach reads the fields of an attach.
func ReadAttach(f *Fields) (Attach, error) {
	a := Attach{Name: f.Text(), Handle: f.Uint32(), Role: f.Bool()}
	snd, ok := f.Uint()
	if a.SenderSettle = byte(snd); !ok {
		a.SenderSettle = SenderMixed
	}
	rcv, _ := f.Uint()
	a.ReceiverSettle = byte(rcv)
	a.Source, a.Target = f.Raw(), f.Raw()
	f.Skip(2)
	a.InitialCount = f.Uint32()
	a.MaxMessageSize, _ = f.Uint()
	f.Skip(2)
	a.Properties, _ = f.Any().(Map)
	if err := f.Err(); err != nil {
		return a, err
	}
	switch ms := a.Properties.Get("com.microsoft:timeout").(type) {
	case uint32:
		a.Timeout = ms
	case int32:
		a.Timeout = uint32(max(ms, 0))
	case uint64:
		a.Timeout = uint32(min(ms, 1<<32-1))
	}
	if err := a.readSource(); err != nil {
		return a, err
	}
	return a, a.readTarget()
}

func (a *Attach) readSource() error {
	if a.Source == nil {
		return nil
	}
	r := NewReader(a.Source)
	code, f, err := r.Composite()
	if err != nil || code != codeSource {
		return fmt.Errorf("%w: source 0x%x: %v", ErrSyntax, code, err)
	}
	a.SourceAddress, _ = f.Any().(string)
	f.Skip(6)
	filters, _ := f.Any().(Map)
	for _, e := range filters {
		if name, ok := e.Key.(Symbol); !ok || name != SessionFilter {
			continue
		}
		a.SessionFilter = true
		v := e.Value
		if d, ok := v.(Described); ok {
			v, a.described = d.Value, d.Descriptor
		}
		if id, ok := v.(string); ok {
			a.SessionID = &id
		}
	}
	return f.Err()
}

func (a *Attach) readTarget() error {
	if a.Target == nil {
		return nil
	}
	r := NewReader(a.Target)
	code, f, err := r.Composite()
	if err != nil {
		return err
	}
	if code == codeCoordinator {
		a.Coordinator = true
		return nil
	}
	if code != codeTarget {
		return fmt.Errorf("%w: target 0x%x", ErrSyntax, code)
	}
	a.TargetAddress, _ = f.Any().(string)
	return f.Err()
}

// GrantSession puts the session into the source's filter, where the client looks
// for the one it was given, with the descriptor with which it asked: some clients
// ask without, and don't look behind one.
func (a *Attach) GrantSession(id string) {
	b, at := beginComposite(nil, codeSource)
	b = AppendString(b, a.SourceAddress)
	for range 6 {
		b = append(b, codeNull)
	}
	var v any = id
	if a.described != nil {
		v = Described{a.described, id}
	}
	b = AppendValue(b, Map{{Symbol(SessionFilter), v}})
	a.Source = endCompound(b, at, 8)
}

// Append appends the performative as the answer to the one that was read: the
// role is turned round by the caller.
func (a Attach) Append(b []byte) []byte {
	b, at := beginComposite(b, CodeAttach)
	b = AppendString(b, a.Name)
	b = AppendUint(b, a.Handle)
	b = AppendBool(b, a.Role)
	b = append(b, codeUbyte, a.SenderSettle, codeUbyte, a.ReceiverSettle)
	if a.NullTermini {
		b = append(b, codeNull, codeNull)
	} else {
		b = appendRaw(appendRaw(b, a.Source), a.Target)
	}
	b = append(b, codeNull, codeNull)
	if !a.Role { // we send on it
		b = AppendUint(b, a.InitialCount)
	} else {
		b = append(b, codeNull)
	}
	b = AppendUlong(b, a.MaxMessageSize)
	if a.ResponseProperty == nil {
		return endCompound(b, at, 11)
	}
	b = append(b, codeNull, codeNull)
	return endCompound(AppendValue(b, a.ResponseProperty), at, 14)
}

func appendRaw(b []byte, v Raw) []byte {
	if v == nil {
		return append(b, codeNull)
	}
	return append(b, v...)
}

// Transfer carries a message or a part of one.
type Transfer struct {
	Handle        uint32
	DeliveryID    uint32
	HasDeliveryID bool // only sure on the first frame of a delivery
	DeliveryTag   []byte
	Format        uint32
	Settled       bool
	More          bool
	Aborted       bool
	Transactional bool // its state is of a transaction
}

// ReadTransfer reads the fields of a transfer. The payload is what the reader has
// left.
func ReadTransfer(f *Fields) (Transfer, error) {
	t := Transfer{Handle: f.Uint32()}
	id, ok := f.Uint()
	t.DeliveryID, t.HasDeliveryID = uint32(id), ok
	t.DeliveryTag, _ = f.Bytes()
	t.Format, t.Settled, t.More = f.Uint32(), f.Bool(), f.Bool()
	f.Skip(1)
	if state := f.Raw(); len(state) > 2 && state[1] == codeSmallUlong && state[2] == stateTransactional {
		t.Transactional = true
	}
	f.Skip(1)
	t.Aborted = f.Bool()
	return t, f.Err()
}

// Append appends the performative; the payload follows it in the frame.
func (t Transfer) Append(b []byte) []byte {
	b, at := beginComposite(b, CodeTransfer)
	b = AppendUint(b, t.Handle)
	b = AppendUint(b, t.DeliveryID)
	b = AppendBinary(b, t.DeliveryTag)
	b = AppendUint(b, t.Format)
	b = AppendBool(b, t.Settled)
	return endCompound(AppendBool(b, t.More), at, 6)
}
