package amqp

import "fmt"

// The outcomes and states of a delivery.
const (
	StateReceived      = 0x23
	StateAccepted      = 0x24
	StateRejected      = 0x25
	StateReleased      = 0x26
	StateModified      = 0x27
	stateTransactional = 0x34
)

// State is the state of a delivery. The zero value stands for none.
type State struct {
	Code              uint64
	Error             Error // of a rejected one
	DeliveryFailed    bool  // of a modified one, as are the two below
	UndeliverableHere bool
	Annotations       Raw
	Transactional     bool
}

// Accepted is the state of success.
var Accepted = State{Code: StateAccepted}

// Rejected is the state of a refusal with its reason.
func Rejected(e Error) State { return State{Code: StateRejected, Error: e} }

func readState(raw Raw) (State, error) {
	if raw == nil {
		return State{}, nil
	}
	r := NewReader(raw)
	code, f, err := r.Composite()
	if err != nil {
		return State{}, err
	}
	s := State{Code: code}
	switch code {
	case StateAccepted, StateReleased, StateReceived:
	case StateRejected:
		if s.Error, err = readError(f.Raw()); err != nil {
			return State{}, err
		}
	case StateModified:
		s.DeliveryFailed, s.UndeliverableHere, s.Annotations = f.Bool(), f.Bool(), f.Raw()
	case stateTransactional:
		s.Transactional = true
	default:
		return State{}, fmt.Errorf("%w: delivery state 0x%x", ErrSyntax, code)
	}
	return s, f.Err()
}

func (s State) append(b []byte) []byte {
	if s.Code == 0 {
		return append(b, codeNull)
	}
	b = AppendUlong(append(b, codeDescribed), s.Code)
	if s.Code != StateRejected {
		return append(b, codeList0)
	}
	b, at := beginCompound(b, codeList32)
	return endCompound(appendError(b, s.Error), at, 1)
}

// Disposition tells the state of deliveries first to last.
type Disposition struct {
	Role        bool
	First, Last uint32
	Settled     bool
	State       State
}

// ReadDisposition reads the fields of a disposition. What its state carries
// aliases the buffer.
func ReadDisposition(f *Fields) (Disposition, error) {
	d := Disposition{Role: f.Bool(), First: f.Uint32()}
	last, ok := f.Uint()
	if d.Last = uint32(last); !ok {
		d.Last = d.First
	}
	d.Settled = f.Bool()
	raw := f.Raw()
	if err := f.Err(); err != nil {
		return d, err
	}
	var err error
	d.State, err = readState(raw)
	return d, err
}

// Append appends the performative.
func (d Disposition) Append(b []byte) []byte {
	b, at := beginComposite(b, CodeDisposition)
	b = AppendBool(b, d.Role)
	b = AppendUint(b, d.First)
	b = AppendUint(b, d.Last)
	b = AppendBool(b, d.Settled)
	return endCompound(d.State.append(b), at, 5)
}
