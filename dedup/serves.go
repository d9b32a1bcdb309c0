package dedup

import (
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
)

// served is an entity whose messages a store's markers have to outlast.
type served struct {
	entity broker.Entity
	more   Horizon
}

// Serves names the entity whose messages are handled, so that [Handler], [LeaseHandler],
// [CallHandler] and [HandleBatch] warn, by [WarnHook], of a store whose window is
// shorter than the horizon that the entity makes; see [HorizonOf], which also says what
// more is for. A store without a window is warned of too. To refuse rather than to
// warn, give a store's Options.Horizon.
//
// HandleBatch warns once for an inbox.
func Serves(e broker.Entity, more Horizon) HandlerOption {
	return func(h *handling) { h.serves = &served{e, more} }
}

func (s *served) check(window time.Duration, warn func(string)) {
	if s == nil {
		return
	}
	if err := CheckWindow(window, s.entity, s.more); err != nil {
		warn(err.Error())
	}
}

// HorizonOf is the horizon that an entity makes, as far as it tells by itself, joined
// with more, what only its operators know: of each of the three the longer one.
//
//   - ProducerRetry is the entity's dedup Window. As long as its broker knows an ID a
//     producer may send it again ([broker.Retry] and [Relay] stop there), and the copy
//     that the broker lets through is the one after that.
//   - Redelivery is Lease times MaxDeliveries: a consumer that hangs on each delivery.
//     An entity without MaxDeliveries delivers for as long as it keeps a message, which
//     more has to say.
//   - Replay is nothing: more has to say it.
//
// For a window that the broker has without having been asked, set e.Window from the
// Limits of a publisher.
func HorizonOf(e broker.Entity, more Horizon) Horizon {
	return Horizon{
		ProducerRetry: max(e.Window, more.ProducerRetry),
		Redelivery:    max(e.Lease*time.Duration(e.MaxDeliveries), more.Redelivery),
		Replay:        more.Replay,
	}
}

// CheckWindow returns an error, which is [broker.ErrInvalid] and names the entity, if
// markers that are kept for window are gone before the last copy of its messages may
// come, by [HorizonOf]. A window of zero is one that isn't known.
func CheckWindow(window time.Duration, e broker.Entity, more Horizon) error {
	name := e.Subscription
	if name == "" {
		name = e.Topic
	}
	if window <= 0 {
		return broker.Errorf(broker.ErrInvalid, nil, "dedup: nobody says how long markers of %s are kept", name)
	}
	if err := HorizonOf(e, more).Check(window); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
