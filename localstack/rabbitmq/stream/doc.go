// Package stream is an emulator of RabbitMQ's stream protocol, for one node that
// runs in this process.
//
// It speaks what clients need to publish with a reference and publishing IDs, to
// subscribe with offsets and credit, to keep offsets, and to take turns as a
// single active consumer. Super streams, filters on the broker's side and TLS
// are not emulated: the commands of super streams are answered "stream does not
// exist", a filter value is read and dropped.
//
// What it models beside the plain protocol:
//
//   - dedup by reference and publishing ID, of which only the highest is kept: a
//     lower one is confirmed and dropped, stored or not (RMS-F-01, RMS-F-02); the
//     confirm doesn't tell which (RMS-F-03);
//   - the IDs outlive a restart (RMS-F-05), but at the roll of a segment only the
//     newest 255 names are kept (RMS-F-06);
//   - an unknown name's last publishing ID is 0 (RMS-F-07);
//   - stored offsets are written into the stream itself and take an offset there,
//     so the offsets of messages have gaps (RMS-F-08, RMS-F-13); one that is
//     lower than before is taken, and nobody is fenced (RMS-F-12, RMS-F-14);
//   - a chunk is delivered as it was stored, whole, so that a subscription from an
//     offset within it also gets the messages before (RMS-F-15);
//   - of a single active consumer group one gets messages, and the next one when
//     its connection or subscription ends (RMS-F-16);
//   - a publish frame makes one chunk, or more where it has over 65,535 entries;
//     the real broker may put several frames into one.
//
// # Faults
//
// The classes of package fault are: Publish is Publish, with PublishConfirm as
// its answer; Receive is Credit and Subscribe, and what is handed out is Deliver;
// Settle is StoreOffset and QueryOffset, of which only the second has an answer;
// Admin is everything else, Subscribe too, but for the upkeep of the connection
// (PeerProperties, SaslHandshake, SaslAuthenticate, Tune, Open, Heartbeat, Close,
// ExchangeCommandVersions, ConsumerUpdate), which is struck by Fault.API alone.
// Match equals a stream's name; API is a command by its name in the protocol's
// specification. Code is a response code of the protocol; zero is 15, internal
// error. A Deliver that is lost takes its connection with it, for a TCP stream
// can't lose a frame out of its midst.
package stream
