// Package otel exports what package dedup counts as OpenTelemetry metrics.
//
//	t, err := otel.New()
//	defer t.Close()
//	inbox := dedup.New(store, "billing", dedup.Options{Took: t.Took(otel.Inbox, "billing")})
//	stop := t.Inbox(inbox)
//	defer stop()
//
//	relay := dedup.NewRelay(store, "orders", pub, dedup.RelayOptions{Published: t.Published("orders")})
//	defer t.Relay(relay)()
//	defer t.Outbox("orders", store)()
//
//	rcv, err := conn.OpenReceiver(ctx, "orders/billing", t.Rebalances("orders/billing"))
//	defer t.DuplicatesApplied("billing", countInEffects)()
//
// A program that doesn't import this package links no OpenTelemetry; one that does pays
// nothing for a message: the counts are those of dedup's Stats, which are read when a
// reader collects. Only what is a distribution is recorded as it happens, one point for
// each call whatever the number of its messages.
//
// # Metrics
//
// By their OpenTelemetry names. A Prometheus exporter writes dots as underscores and
// appends the unit and _total: duplicates_caught becomes duplicates_caught_total,
// onceline.relay.lag becomes onceline_relay_lag_seconds.
//
//	duplicates_caught                copies whose effect was not applied again: normal
//	duplicate_processing             effects applied twice, as an audit of them finds: none may be
//	stuck_processing_records         found begun by somebody who crashed before he recorded its end
//	consumer_group_rebalance_count   sessions of a consumer group that began
//
//	onceline.dedup.messages          by onceline.outcome
//	onceline.dedup.running           messages in calls that have not ended
//	onceline.dedup.decisions         of handlers, by onceline.decision and onceline.reason
//	onceline.dedup.ambiguous_commits commits whose answer was lost
//	onceline.dedup.retries           transactions and questions that were tried again
//	onceline.dedup.fenced            transactions of a position that another had moved
//	onceline.dedup.lease_lost        leases lost before the end of the effect was recorded
//	onceline.dedup.suspected_duplicates  effects that another may have applied too
//	onceline.dedup.late              applied though older than the window of the markers
//	onceline.dedup.suspect_ids       messages whose ID finds no duplicate
//	onceline.dedup.window            s, for which markers are kept
//	onceline.dedup.duration          s, of calls
//	onceline.dedup.batch             messages of calls
//	onceline.dedup.query_errors      what a store didn't answer for one of these metrics
//
//	onceline.calls.unresolved        calls that came to wait for somebody to decide
//	onceline.calls.open              those that wait now, up to a thousand
//	onceline.calls.open_age          s, since the one that waits longest was begun
//
//	onceline.partitions.assigned     partitions that a receiver got
//	onceline.partitions.lost         and that went
//
//	onceline.relay.messages          by onceline.verdict; those in doubt are tried again
//	onceline.relay.stopped           held and parked, by onceline.state
//	onceline.relay.publishes         calls of the broker
//	onceline.relay.errors            what went to the relay's ErrorHook
//	onceline.relay.window            s, for which the broker remembers IDs
//	onceline.relay.retry_age         s, how long before a retry a message may first have been stored
//	onceline.relay.publish.duration  s
//	onceline.outbox.messages         in the outbox, by onceline.state
//	onceline.outbox.lag              s, since the oldest that waits was written
//	onceline.publish.age             s, of the oldest message of a Publish when it was sent
//	onceline.publish.window          s, for which the broker remembers IDs
//
// Those of guards have the attributes onceline.consumer and onceline.guard (inbox,
// position, lease, calls), those of topics and subscriptions messaging.destination.name.
// What a counter can say is there from the beginning, as zero. docs/operations has what
// each means, rules for alerts, and a dashboard.
//
// # What can't be seen here
//
// A duplicate that was applied is by its nature one that no guard saw: duplicate_processing
// needs an audit of the effects, see [Telemetry.DuplicatesApplied]. Rebalances are seen
// where the client takes part in them, as in Kafka's consumer groups; a share group's,
// and a queue's that changes its active consumer, happen in the broker. What Consume
// dead-letters after the last attempt is in messaging metrics of package broker/otel.
package otel
