package amqp

import "fmt"

// The descriptors of the performatives.
const (
	CodeOpen           = 0x10
	CodeBegin          = 0x11
	CodeAttach         = 0x12
	CodeFlow           = 0x13
	CodeTransfer       = 0x14
	CodeDisposition    = 0x15
	CodeDetach         = 0x16
	CodeEnd            = 0x17
	CodeClose          = 0x18
	codeError          = 0x1d
	codeSource         = 0x28
	codeTarget         = 0x29
	codeCoordinator    = 0x30
	CodeSASLMechanisms = 0x40
	CodeSASLInit       = 0x41
	CodeSASLOutcome    = 0x44
)

// The sides of a link, as the role fields have them.
const (
	RoleSender   = false
	RoleReceiver = true
)

// Error is a condition that ends a link, session or connection, or refuses a
// delivery. The zero value stands for none.
type Error struct {
	Condition   Symbol
	Description string
	Info        Raw // a map; nil for none
}

func appendError(b []byte, e Error) []byte {
	if e.Condition == "" {
		return append(b, codeNull)
	}
	b, at := beginComposite(b, codeError)
	b = AppendSymbol(b, e.Condition)
	b = AppendString(b, e.Description)
	if e.Info == nil {
		return endCompound(b, at, 2)
	}
	return endCompound(append(b, e.Info...), at, 3)
}

func readError(raw Raw) (Error, error) {
	if raw == nil {
		return Error{}, nil
	}
	r := NewReader(raw)
	code, f, err := r.Composite()
	if err != nil {
		return Error{}, err
	}
	if code != codeError {
		return Error{}, fmt.Errorf("%w: descriptor 0x%x where an error should be", ErrSyntax, code)
	}
	e := Error{Condition: Symbol(f.Text()), Description: f.Text(), Info: f.Raw()}
	return e, f.Err()
}

func beginComposite(b []byte, code uint64) ([]byte, int) {
	return beginCompound(AppendUlong(append(b, codeDescribed), code), codeList32)
}

// Open begins a connection.
type Open struct {
	Container, Hostname string
	MaxFrameSize        uint32 // 0: not said, which means no limit
	ChannelMax          uint16
	IdleTimeout         uint32 // ms; 0: none
}

// ReadOpen reads the fields of an open.
func ReadOpen(f *Fields) (Open, error) {
	o := Open{Container: f.Text(), Hostname: f.Text(), MaxFrameSize: f.Uint32(), ChannelMax: uint16(f.Uint32()), IdleTimeout: f.Uint32()}
	return o, f.Err()
}

// Append appends the performative.
func (o Open) Append(b []byte) []byte {
	b, at := beginComposite(b, CodeOpen)
	b = AppendString(b, o.Container)
	b = append(b, codeNull)
	b = AppendUint(b, o.MaxFrameSize)
	b = AppendValue(b, o.ChannelMax)
	return endCompound(AppendUint(b, o.IdleTimeout), at, 5)
}

// Begin begins a session.
type Begin struct {
	RemoteChannel  uint16 // only written
	NextOutgoingID uint32
	IncomingWindow uint32
	OutgoingWindow uint32
	HandleMax      uint32
}

// ReadBegin reads the fields of a begin.
func ReadBegin(f *Fields) (Begin, error) {
	f.Skip(1)
	g := Begin{NextOutgoingID: f.Uint32(), IncomingWindow: f.Uint32(), OutgoingWindow: f.Uint32()}
	h, ok := f.Uint()
	if g.HandleMax = uint32(h); !ok {
		g.HandleMax = 1<<32 - 1
	}
	return g, f.Err()
}

// Append appends the performative.
func (g Begin) Append(b []byte) []byte {
	b, at := beginComposite(b, CodeBegin)
	b = AppendValue(b, g.RemoteChannel)
	b = AppendUint(b, g.NextOutgoingID)
	b = AppendUint(b, g.IncomingWindow)
	b = AppendUint(b, g.OutgoingWindow)
	return endCompound(AppendUint(b, g.HandleMax), at, 5)
}

// Flow tells windows of a session and, with a handle, the credit of a link.
type Flow struct {
	NextIncomingID *uint32
	IncomingWindow uint32
	NextOutgoingID uint32
	OutgoingWindow uint32
	Handle         uint32
	HasHandle      bool
	DeliveryCount  uint32
	LinkCredit     uint32
	Available      uint32
	Drain, Echo    bool
}

// ReadFlow reads the fields of a flow.
func ReadFlow(f *Fields) (Flow, error) {
	var w Flow
	if id, ok := f.Uint(); ok {
		n := uint32(id)
		w.NextIncomingID = &n
	}
	w.IncomingWindow, w.NextOutgoingID, w.OutgoingWindow = f.Uint32(), f.Uint32(), f.Uint32()
	h, ok := f.Uint()
	w.Handle, w.HasHandle = uint32(h), ok
	w.DeliveryCount, w.LinkCredit, w.Available = f.Uint32(), f.Uint32(), f.Uint32()
	w.Drain, w.Echo = f.Bool(), f.Bool()
	return w, f.Err()
}

// Append appends the performative.
func (w Flow) Append(b []byte) []byte {
	b, at := beginComposite(b, CodeFlow)
	if w.NextIncomingID == nil {
		b = append(b, codeNull)
	} else {
		b = AppendUint(b, *w.NextIncomingID)
	}
	b = AppendUint(b, w.IncomingWindow)
	b = AppendUint(b, w.NextOutgoingID)
	b = AppendUint(b, w.OutgoingWindow)
	if !w.HasHandle {
		return endCompound(b, at, 4)
	}
	b = AppendUint(b, w.Handle)
	b = AppendUint(b, w.DeliveryCount)
	b = AppendUint(b, w.LinkCredit)
	b = AppendUint(b, w.Available)
	return endCompound(AppendBool(b, w.Drain), at, 9)
}

// AppendClosing appends a detach, end or close, with the error that is its reason.
// Handle is only of a detach, which always closes the link.
func AppendClosing(b []byte, code uint64, handle uint32, e Error) []byte {
	b, at := beginComposite(b, code)
	if code != CodeDetach {
		return endCompound(appendError(b, e), at, 1)
	}
	b = AppendBool(AppendUint(b, handle), true)
	return endCompound(appendError(b, e), at, 3)
}

// AppendMechanisms appends the SASL mechanisms that a server offers.
func AppendMechanisms(b []byte, names []Symbol) []byte {
	b, at := beginComposite(b, CodeSASLMechanisms)
	return endCompound(AppendValue(b, names), at, 1)
}

// AppendOutcome appends the outcome of SASL: 0 is success, 1 a refusal.
func AppendOutcome(b []byte, code byte) []byte {
	b, at := beginComposite(b, CodeSASLOutcome)
	return endCompound(append(b, codeUbyte, code), at, 1)
}
