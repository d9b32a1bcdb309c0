package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// Operator is what a pipeline does with its input. Its functions are called by one
// goroutine, one after another. What they change outside of State and Out (a call, a
// row of another database) is no part of any checkpoint: it happens again after a
// restart.
type Operator struct {
	// Process takes one message. An error, or a panic, takes everything since the
	// last checkpoint back and begins there anew, as Options.Restarts says; so a
	// message that can't be processed has to be dealt with here, by an Emit to a
	// topic for dead letters for instance, or the pipeline ends.
	Process func(ctx context.Context, in *Input, out *Out) error
	// Flush, where not nil, is called before each checkpoint, to emit what Process
	// has gathered.
	Flush func(ctx context.Context, out *Out) error
	// State, where not nil, is kept in the checkpoints.
	State State
}

// Input is one message and the name of its source.
type Input struct {
	Source string
	broker.Message
	Position broker.Position
}

// Output is one message and the topic that it goes to, as the sink's broker names
// it; what a topic means to a [Database] sink is up to its function.
type Output struct {
	Topic string
	broker.Message
}

// Out takes an operator's output during one call.
type Out struct {
	msgs   []Output
	prefix []string // of the IDs that are missing
	n      int      // of this call
	in     *Input   // nil in Flush
	bytes  int
	err    error
}

// Emit adds a message to the checkpoint's output. An empty ID becomes one made of
// the pipeline's name, the input's position and the number of the message in this
// call, so that it is the same when the input is processed again. A zero Time
// becomes the input's. The message's Body and Headers must not be changed after.
func (o *Out) Emit(topic string, m broker.Message) {
	o.n++
	if m.ID == "" {
		id, err := dedup.JoinID(1, append(o.prefix, strconv.Itoa(o.n))...)
		if err != nil && o.err == nil {
			o.err = err
		}
		m.ID = id
	}
	if m.Time.IsZero() && o.in != nil {
		m.Time = o.in.Time
	}
	o.bytes += len(m.Body)
	o.msgs = append(o.msgs, Output{topic, m})
}

// State is what an operator remembers from message to message. A pipeline takes a
// snapshot for each checkpoint and restores the last one when it begins or begins
// anew. The snapshot is whole each time, so its size bounds how often it can be
// taken: see Options.MaxState.
type State interface {
	Snapshot() (Snapshot, error)
	// Restore replaces all of the state. Nil Data is the state before the first
	// message.
	Restore(Snapshot) error
}

// Snapshot is a state as bytes. Version is the state's own: Restore tells by it
// what an older program wrote.
type Snapshot struct {
	Version uint32
	Data    []byte
}

// JSON is a [State] that holds a value and keeps it as JSON.
type JSON[S any] struct {
	Value S
	// Version is that of S. A snapshot of another version goes through Upgrade.
	Version uint32
	// Upgrade, where not nil, reads what an older version wrote.
	Upgrade func(Snapshot) (S, error)
	// Empty, where not nil, makes the value before the first message. Nil takes the
	// zero value.
	Empty func() S
}

// Snapshot implements [State].
func (j *JSON[S]) Snapshot() (Snapshot, error) {
	data, err := json.Marshal(j.Value)
	return Snapshot{j.Version, data}, err
}

// Restore implements [State].
func (j *JSON[S]) Restore(s Snapshot) (err error) {
	var v S
	switch {
	case s.Data == nil:
		if j.Empty != nil {
			v = j.Empty()
		}
	case s.Version == j.Version:
		err = json.Unmarshal(s.Data, &v)
	case j.Upgrade != nil:
		v, err = j.Upgrade(s)
	default:
		err = fmt.Errorf("the state was kept in version %d, this is %d, and there is no Upgrade", s.Version, j.Version)
	}
	if err == nil {
		j.Value = v
	}
	return err
}
