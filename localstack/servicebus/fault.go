package servicebus

import (
	"strings"
	"time"

	"github.com/onceline/onceline/localstack/fault"
	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// The operations that faults strike, by the names that [fault.Fault.API] narrows
// to:
//
//	Publish  "transfer" on a sender's link, "com.microsoft:schedule-message"
//	Receive  "flow" on a receiver's link, by which it asks;
//	         "transfer" for what is handed out (LoseResponse);
//	         "com.microsoft:receive-by-sequence-number"
//	Settle   "disposition" but for a release, which is struck by that name alone;
//	         "com.microsoft:update-disposition", "com.microsoft:renew-lock",
//	         "com.microsoft:renew-session-lock"
//	Admin    "put-token" to $cbs, "attach", every other operation of $management
//	         by its name, and the HTTP interface by method ("PUT", "GET", "DELETE")
//
// [fault.Fault.Match] is the path of an entity, whatever its case: "orders",
// "prices/subscriptions/audit", "orders/$deadletterqueue".
//
// A delayed request holds up all behind it on its connection, as they are taken in
// order; it is lost if the connection ends before its time.
//
// A message whose hand-out is lost stays locked (or is gone, on a receiver that
// deletes), and costs the receiver no credit. A disposition of several deliveries
// is one hit.

// strike returns the fault that a request on an entity meets; nil for none.
func (s *Server) strike(op fault.Op, api, path string) *fault.Injection {
	if s.faults.Armed() == nil {
		return nil
	}
	return s.faults.Strike(op.Ops(), api, matches(path))
}

func (s *Server) strikeHandout(api, path string) *fault.Injection {
	if s.faults.Armed() == nil {
		return nil
	}
	return s.faults.StrikeHandout(api, matches(path))
}

func matches(path string) func(string) bool {
	return func(match string) bool {
		return match == "" || strings.EqualFold(strings.Trim(match, "/"), path)
	}
}

// carryOut does to a request on c what a fault says. apply applies it, answers if
// asked to, and says whether the server did what it asks; refuse answers with an
// error. The server's mutex is held, as it is when they are called.
func (s *Server) carryOut(inj *fault.Injection, c *conn, apply func(now time.Time, answer bool) bool, refuse func(code int)) {
	f := inj.Fault()
	s.tracef("fault %s", f.Kind)
	switch f.Kind {
	case fault.Cut:
		c.cut()
		return
	case fault.LoseResponse:
		inj.Answered(apply(s.clock.Now(), false))
	case fault.Error:
		refuse(f.Code)
		if f.Cut {
			c.finish()
		}
		return
	case fault.Delay:
		paused := make(chan struct{})
		c.paused = paused
		s.clock.AfterFunc(f.Delay, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			defer close(paused)
			if s.closed || c.ended || c.dead() { // it was on its way through a connection that is gone
				return
			}
			apply(s.clock.Now(), true)
			inj.Answered(true)
			if f.Cut {
				c.finish()
			}
		})
		return
	}
	if f.Cut {
		c.cut()
	}
}

// busy is the code that a fault of kind Error has if none is given.
const busy = 503

// conditions are the errors by the codes that $management answers with.
var conditions = map[int]amqp.Error{
	400:  {Condition: "com.microsoft:argument-error", Description: "The argument is invalid."},
	401:  {Condition: "amqp:unauthorized-access", Description: "Unauthorized access."},
	403:  {Condition: "com.microsoft:entity-disabled", Description: "The messaging entity is disabled."},
	404:  {Condition: "amqp:not-found", Description: "The messaging entity could not be found."},
	405:  {Condition: "amqp:not-allowed", Description: "The operation is not allowed."},
	408:  {Condition: "com.microsoft:timeout", Description: "The operation did not complete within the allotted timeout."},
	410:  {Condition: condLockLost, Description: lockLostText},
	413:  {Condition: "amqp:link:message-size-exceeded", Description: "The message is too large."},
	500:  {Condition: "amqp:internal-error", Description: "The service was unable to process the request."},
	busy: {Condition: "com.microsoft:server-busy", Description: "The request was terminated because the entity is being throttled. Please wait and try again."},
}

// errorFor is the error that stands for a code of HTTP's; that of 503 for 0 and
// for those that have none.
func errorFor(code int) amqp.Error {
	if e, ok := conditions[code]; ok {
		return e
	}
	return conditions[busy]
}
