package amqp

// Method is a method's class and number, as the first four bytes of its frame
// hold them.
type Method uint32

// ClassBasic is the class of the methods that carry messages.
const ClassBasic = 60

// The methods of AMQP 0-9-1 and of RabbitMQ's extensions.
const (
	ConnectionStart          Method = 10<<16 | 10
	ConnectionStartOk        Method = 10<<16 | 11
	ConnectionSecure         Method = 10<<16 | 20
	ConnectionSecureOk       Method = 10<<16 | 21
	ConnectionTune           Method = 10<<16 | 30
	ConnectionTuneOk         Method = 10<<16 | 31
	ConnectionOpen           Method = 10<<16 | 40
	ConnectionOpenOk         Method = 10<<16 | 41
	ConnectionClose          Method = 10<<16 | 50
	ConnectionCloseOk        Method = 10<<16 | 51
	ConnectionUpdateSecret   Method = 10<<16 | 70
	ConnectionUpdateSecretOk Method = 10<<16 | 71

	ChannelOpen    Method = 20<<16 | 10
	ChannelOpenOk  Method = 20<<16 | 11
	ChannelFlow    Method = 20<<16 | 20
	ChannelFlowOk  Method = 20<<16 | 21
	ChannelClose   Method = 20<<16 | 40
	ChannelCloseOk Method = 20<<16 | 41

	AccessRequest   Method = 30<<16 | 10
	AccessRequestOk Method = 30<<16 | 11

	ExchangeDeclare   Method = 40<<16 | 10
	ExchangeDeclareOk Method = 40<<16 | 11
	ExchangeDelete    Method = 40<<16 | 20
	ExchangeDeleteOk  Method = 40<<16 | 21
	ExchangeBind      Method = 40<<16 | 30
	ExchangeBindOk    Method = 40<<16 | 31
	ExchangeUnbind    Method = 40<<16 | 40
	ExchangeUnbindOk  Method = 40<<16 | 51

	QueueDeclare   Method = 50<<16 | 10
	QueueDeclareOk Method = 50<<16 | 11
	QueueBind      Method = 50<<16 | 20
	QueueBindOk    Method = 50<<16 | 21
	QueuePurge     Method = 50<<16 | 30
	QueuePurgeOk   Method = 50<<16 | 31
	QueueDelete    Method = 50<<16 | 40
	QueueDeleteOk  Method = 50<<16 | 41
	QueueUnbind    Method = 50<<16 | 50
	QueueUnbindOk  Method = 50<<16 | 51

	BasicQos          Method = 60<<16 | 10
	BasicQosOk        Method = 60<<16 | 11
	BasicConsume      Method = 60<<16 | 20
	BasicConsumeOk    Method = 60<<16 | 21
	BasicCancel       Method = 60<<16 | 30
	BasicCancelOk     Method = 60<<16 | 31
	BasicPublish      Method = 60<<16 | 40
	BasicReturn       Method = 60<<16 | 50
	BasicDeliver      Method = 60<<16 | 60
	BasicGet          Method = 60<<16 | 70
	BasicGetOk        Method = 60<<16 | 71
	BasicGetEmpty     Method = 60<<16 | 72
	BasicAck          Method = 60<<16 | 80
	BasicReject       Method = 60<<16 | 90
	BasicRecoverAsync Method = 60<<16 | 100
	BasicRecover      Method = 60<<16 | 110
	BasicRecoverOk    Method = 60<<16 | 111
	BasicNack         Method = 60<<16 | 120

	ConfirmSelect   Method = 85<<16 | 10
	ConfirmSelectOk Method = 85<<16 | 11

	TxSelect     Method = 90<<16 | 10
	TxSelectOk   Method = 90<<16 | 11
	TxCommit     Method = 90<<16 | 20
	TxCommitOk   Method = 90<<16 | 21
	TxRollback   Method = 90<<16 | 30
	TxRollbackOk Method = 90<<16 | 31
)

// Class returns the method's class.
func (m Method) Class() uint16 { return uint16(m >> 16) }

// Number returns the method's number within its class.
func (m Method) Number() uint16 { return uint16(m) }

var names = map[Method]string{
	ConnectionStartOk: "connection.start-ok", ConnectionSecureOk: "connection.secure-ok",
	ConnectionTuneOk: "connection.tune-ok", ConnectionOpen: "connection.open",
	ConnectionClose: "connection.close", ConnectionCloseOk: "connection.close-ok",
	ConnectionUpdateSecret: "connection.update-secret",
	ChannelOpen:            "channel.open", ChannelFlow: "channel.flow", ChannelFlowOk: "channel.flow-ok",
	ChannelClose: "channel.close", ChannelCloseOk: "channel.close-ok", AccessRequest: "access.request",
	ExchangeDeclare: "exchange.declare", ExchangeDelete: "exchange.delete",
	ExchangeBind: "exchange.bind", ExchangeUnbind: "exchange.unbind",
	QueueDeclare: "queue.declare", QueueBind: "queue.bind", QueuePurge: "queue.purge",
	QueueDelete: "queue.delete", QueueUnbind: "queue.unbind",
	BasicQos: "basic.qos", BasicConsume: "basic.consume", BasicCancel: "basic.cancel",
	BasicCancelOk: "basic.cancel-ok", BasicPublish: "basic.publish", BasicReturn: "basic.return",
	BasicDeliver: "basic.deliver", BasicGet: "basic.get", BasicGetOk: "basic.get-ok",
	BasicAck: "basic.ack", BasicReject: "basic.reject", BasicRecoverAsync: "basic.recover-async",
	BasicRecover: "basic.recover", BasicNack: "basic.nack", ConfirmSelect: "confirm.select",
	TxSelect: "tx.select", TxCommit: "tx.commit", TxRollback: "tx.rollback",
}

// String returns the name of a method that a server receives or hands messages
// out with ("basic.publish"), and "" for any other.
func (m Method) String() string { return names[m] }

// Codes by which a server answers a request that it refuses.
const (
	ReplySuccess       = 200
	NoRoute            = 312
	ConnectionForced   = 320
	AccessRefused      = 403
	NotFound           = 404
	ResourceLocked     = 405
	PreconditionFailed = 406
	FrameErrorCode     = 501
	SyntaxError        = 502
	CommandInvalid     = 503
	ChannelError       = 504
	UnexpectedFrame    = 505
	ResourceError      = 506
	NotAllowed         = 530
	NotImplemented     = 540
	InternalError      = 541
)

var codes = map[int]string{
	311: "CONTENT_TOO_LARGE", NoRoute: "NO_ROUTE", 313: "NO_CONSUMERS", ConnectionForced: "CONNECTION_FORCED",
	402: "INVALID_PATH", AccessRefused: "ACCESS_REFUSED", NotFound: "NOT_FOUND", ResourceLocked: "RESOURCE_LOCKED",
	PreconditionFailed: "PRECONDITION_FAILED", FrameErrorCode: "FRAME_ERROR", SyntaxError: "SYNTAX_ERROR",
	CommandInvalid: "COMMAND_INVALID", ChannelError: "CHANNEL_ERROR", UnexpectedFrame: "UNEXPECTED_FRAME",
	ResourceError: "RESOURCE_ERROR", NotAllowed: "NOT_ALLOWED", NotImplemented: "NOT_IMPLEMENTED",
	InternalError: "INTERNAL_ERROR",
}

// CodeName returns the name of a reply code, "" for one that isn't defined.
func CodeName(code int) string { return codes[code] }

// Soft says whether a code ends a channel alone; any other ends the connection.
func Soft(code int) bool {
	switch code {
	case 311, NoRoute, 313, AccessRefused, NotFound, ResourceLocked, PreconditionFailed:
		return true
	}
	return false
}
