package localstack

import (
	"errors"

	"github.com/onceline/onceline/localstack/fault"
)

// Fault describes what shall happen to which requests. Give it to
// [Emulator.Inject].
type Fault = fault.Fault

// Injection is an armed [Fault].
type Injection = fault.Injection

// Op is a class of protocol operations. Which requests fall in each:
//
//	            Publish           Receive             Settle               Admin
//	NATS        PUB/HPUB with a   $JS.API.CONSUMER.   $JS.ACK.…            any other $JS.API.…
//	            reply, outside    MSG.NEXT.…
//	            of $JS., $SYS.
//	            and _INBOX.
//	Kafka       Produce           Fetch, ShareFetch   OffsetCommit,        the rest but
//	                                                  TxnOffsetCommit,     ApiVersions, SASL,
//	                                                  ShareAcknowledge     heartbeats
//	SQS         SendMessage,      ReceiveMessage      DeleteMessage,       the rest
//	            …Batch                                ChangeMessage-
//	                                                  Visibility, …Batch
//	Pub/Sub     Publish           Pull,               Acknowledge,         the rest
//	                              StreamingPull       ModifyAckDeadline
//	Service Bus transfers of a    transfers to a      dispositions, and    $cbs, the rest of
//	            sender            receiver            their operations     $management, Atom
//	                                                  of $management
//	RabbitMQ    basic.publish     basic.deliver,      basic.ack, .nack,    declare, bind,
//	                              basic.get-ok        .reject              delete, purge
//	  streams   Publish           Deliver             StoreOffset,         the rest
//	                                                  QueryOffset
//
// A ShareFetch of Kafka that carries acknowledgements is both Receive and Settle.
type Op = fault.Op

// The classes of operations. Any is all of the others.
const (
	Any     = fault.Any
	Publish = fault.Publish
	Receive = fault.Receive
	Settle  = fault.Settle
	Admin   = fault.Admin
)

// Kind says what a [Fault] does to the request that it strikes.
type Kind = fault.Kind

// The kinds of faults, as package fault describes them.
const (
	LoseRequest  = fault.LoseRequest
	LoseResponse = fault.LoseResponse
	Delay        = fault.Delay
	Cut          = fault.Cut
	Error        = fault.Error
)

var errNoAPI = errors.New("localstack: fault: NATS has no API names, use Match")
