package pipeline

import (
	"fmt"
	"strings"
	"time"
)

// Loss is output that a checkpoint had recorded and that the sink's broker dropped
// before it was committed.
type Loss struct {
	Pipeline   string
	Checkpoint int64
	// Fate is FateAborted where nothing of it can be there, FateGone where nobody
	// can say.
	Fate Fate
	// Cause is what the broker said.
	Cause error
	// Messages is how many messages of output it is, made of Input messages.
	Messages, Input uint64
	// From and To are the places in the sources between which that input is.
	From, To []Place
	// Opened, Recorded and Found are when its first input was read, when its
	// checkpoint was recorded, and when the loss was found out.
	Opened, Recorded, Found time.Time
	// Need is what Options asked of the sink; an age over it says that the process
	// was away for longer than its budget.
	Need time.Duration
	// Action is what the pipeline does about it.
	Action OnLoss
}

// Age is how long the output was open when its loss was found out.
func (l *Loss) Age() time.Duration { return l.Found.Sub(l.Opened) }

func (l *Loss) String() string {
	var b strings.Builder
	what := "aborted by the broker"
	if l.Fate == FateGone {
		what = "forgotten by the broker, committed or not"
	}
	fmt.Fprintf(&b, "checkpoint %d: %d messages of output %s, open for %v", l.Checkpoint, l.Messages, what, l.Age().Round(time.Millisecond))
	if l.Age() > l.Need {
		fmt.Fprintf(&b, ", longer than interval, checkpoint timeout and restart budget together (%v)", l.Need)
	}
	fmt.Fprintf(&b, "; made of %d messages", l.Input)
	for _, to := range l.To {
		from := uint64(0)
		for _, p := range l.From {
			if p.Source == to.Source && p.Epoch == to.Epoch && p.Partition == to.Partition {
				from = p.Offset
			}
		}
		if from < to.Offset {
			fmt.Fprintf(&b, ", %s/%s from %d to before %d", to.Source, to.Partition, from, to.Offset)
		}
	}
	switch l.Action {
	case StopOnLoss:
		b.WriteString("; the pipeline stops: run it with RewindOnLoss to make the output again, or with ContinueOnLoss to go on without it")
	case RewindOnLoss:
		b.WriteString("; the pipeline goes back and makes it again")
	case ContinueOnLoss:
		b.WriteString("; the pipeline goes on without it")
	}
	return b.String()
}

// LossError is the error of a pipeline that stopped at a loss. It is [ErrDataLoss],
// and what the broker said.
type LossError struct{ Loss Loss }

func (e *LossError) Error() string {
	return fmt.Sprintf("%v: %s: %v", ErrDataLoss, e.Loss.String(), e.Loss.Cause)
}

// Unwrap makes errors.Is find ErrDataLoss and the cause.
func (e *LossError) Unwrap() []error {
	if e.Loss.Cause == nil {
		return []error{ErrDataLoss}
	}
	return []error{ErrDataLoss, e.Loss.Cause}
}
