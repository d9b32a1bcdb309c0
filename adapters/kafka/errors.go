package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
)

// kinds sorts the broker's error codes into the errors of package broker. What
// isn't listed is broker.ErrRefused where the broker won't change its mind, and
// ErrUnavailable where it may.
var kinds = map[int16]error{
	kerr.MessageTooLarge.Code:                    broker.ErrTooLarge,
	kerr.RecordListTooLarge.Code:                 broker.ErrTooLarge,
	kerr.UnknownTopicOrPartition.Code:            broker.ErrNotFound,
	kerr.UnknownTopicID.Code:                     broker.ErrNotFound,
	kerr.GroupIDNotFound.Code:                    broker.ErrNotFound,
	kerr.ResourceNotFound.Code:                   broker.ErrNotFound,
	kerr.TopicAlreadyExists.Code:                 broker.ErrConflict,
	kerr.NonEmptyGroup.Code:                      broker.ErrConflict,
	kerr.GroupSubscribedToTopic.Code:             broker.ErrConflict,
	kerr.InconsistentGroupProtocol.Code:          broker.ErrConflict,
	kerr.UnreleasedInstanceID.Code:               broker.ErrConflict,
	kerr.FencedInstanceID.Code:                   broker.ErrConflict,
	kerr.TopicAuthorizationFailed.Code:           broker.ErrUnauthorized,
	kerr.GroupAuthorizationFailed.Code:           broker.ErrUnauthorized,
	kerr.ClusterAuthorizationFailed.Code:         broker.ErrUnauthorized,
	kerr.TransactionalIDAuthorizationFailed.Code: broker.ErrUnauthorized,
	kerr.SaslAuthenticationFailed.Code:           broker.ErrUnauthorized,
	kerr.UnsupportedSaslMechanism.Code:           broker.ErrUnauthorized,
	kerr.IllegalSaslState.Code:                   broker.ErrUnauthorized,
	kerr.InvalidTopicException.Code:              broker.ErrInvalid,
	kerr.InvalidGroupID.Code:                     broker.ErrInvalid,
	kerr.InvalidPartitions.Code:                  broker.ErrInvalid,
	kerr.InvalidSessionTimeout.Code:              broker.ErrInvalid,
	kerr.InvalidReplicationFactor.Code:           broker.ErrUnsupported,
	kerr.InvalidConfig.Code:                      broker.ErrUnsupported,
	kerr.UnsupportedVersion.Code:                 broker.ErrUnsupported,
	kerr.UnsupportedAssignor.Code:                broker.ErrUnsupported,
	kerr.PolicyViolation.Code:                    broker.ErrRefused,
	kerr.ThrottlingQuotaExceeded.Code:            broker.ErrBusy,
	kerr.GroupMaxSizeReached.Code:                broker.ErrBusy,
	kerr.ShareSessionLimitReached.Code:           broker.ErrBusy,
	kerr.NotEnoughReplicas.Code:                  broker.ErrUnavailable,
	kerr.RequestTimedOut.Code:                    broker.ErrUnknownOutcome,
	kerr.NotEnoughReplicasAfterAppend.Code:       broker.ErrUnknownOutcome,
	kerr.UnknownServerError.Code:                 broker.ErrUnknownOutcome,
	kerr.OutOfOrderSequenceNumber.Code:           broker.ErrUnknownOutcome,
	kerr.UnknownProducerID.Code:                  broker.ErrUnknownOutcome,
	kerr.InvalidProducerEpoch.Code:               broker.ErrUnknownOutcome,
	kerr.InvalidProducerIDMapping.Code:           broker.ErrUnknownOutcome,
	kerr.ProducerFenced.Code:                     broker.ErrUnknownOutcome,
}

// kindOf returns the error of package broker that err is, and otherwise where
// err comes from no broker.
func kindOf(err, otherwise error) error {
	var ke *kerr.Error
	switch {
	case errors.As(err, &ke):
		if kind, ok := kinds[ke.Code]; ok {
			return kind
		}
		if ke.Retriable {
			return broker.ErrUnavailable
		}
		return broker.ErrRefused
	case errors.Is(err, kgo.ErrMaxBuffered):
		return broker.ErrBusy
	case errors.Is(err, kgo.ErrClientClosed):
		return broker.ErrClosed
	}
	return otherwise
}

// refusal is the error for a message that is surely not stored, or nil if err
// leaves that open. doubt reports that an earlier attempt may have been stored.
func refusal(err error, doubt bool) error {
	if errors.Is(err, kgo.ErrMaxBuffered) {
		return broker.ErrBusy // the SDK never took it
	}
	if doubt {
		return nil
	}
	// Only a broker's own answer, or the SDK's check before sending, which uses
	// the same error value, rules out that the message is stored.
	var ke *kerr.Error
	if !errors.As(err, &ke) {
		return nil
	}
	if kind := kindOf(err, nil); kind != broker.ErrUnknownOutcome {
		return kind
	}
	return nil
}

// sessionOver reports that the broker has no such share session any more, which it
// forgets with the connection, or that the partition's state has a new keeper: the next
// fetch begins a new session.
func sessionOver(err error) bool {
	return errors.Is(err, kerr.ShareSessionNotFound) || errors.Is(err, kerr.InvalidShareSessionEpoch) || errors.Is(err, kerr.FencedStateEpoch)
}

// deadProducer reports that a client's producer ID is spent: franz-go refuses
// to go on, for it can't rule out a gap or a second copy.
func deadProducer(err error) bool {
	return errors.Is(err, kerr.OutOfOrderSequenceNumber) || errors.Is(err, kerr.UnknownProducerID) ||
		errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.InvalidProducerIDMapping) ||
		errors.Is(err, kerr.ProducerFenced)
}

// wontHeal reports whether an error of fetching or of the group is one that
// trying again doesn't cure.
func wontHeal(err error) bool {
	switch kindOf(err, nil) {
	case broker.ErrUnauthorized, broker.ErrInvalid, broker.ErrUnsupported, broker.ErrNotFound, broker.ErrConflict:
		return true
	case broker.ErrRefused:
		return !fenced(err) && !rebalancing(err) && !sessionOver(err) // a member that was thrown out joins again
	}
	return false
}
