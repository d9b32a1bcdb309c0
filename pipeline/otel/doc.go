// Package otel exports what a pipeline of package pipeline does as OpenTelemetry metrics,
// and each of its checkpoints as a span.
//
//	t, err := otel.New()
//	defer t.Close()
//	p, err := pipeline.New(pipeline.Config[*sql.Tx]{
//		Name:    "billing",
//		Options: pipeline.Options{Checkpointed: t.Checkpointed("billing")},
//		…
//	})
//	defer t.Watch("billing", p)()
//
// A program that doesn't import this package links no OpenTelemetry; one that does pays
// nothing for a message: the counts are those of pipeline's Stats, which are read when a
// reader collects, and three points and a span are recorded for each checkpoint.
//
// # Metrics
//
// By their OpenTelemetry names. A Prometheus exporter writes dots as underscores and
// appends the unit and _total, so that they read as the names that Options.Metric is
// called with: pipeline.data_loss becomes pipeline_data_loss_total,
// pipeline.output.held pipeline_output_held_seconds.
//
//	kafka_transaction_abort_rate   share of the sink's transactions that were aborted, from 0 to 1
//	pipeline.data_loss             losses: the broker dropped output that a checkpoint counted on: none may be
//	pipeline.data_loss_messages    messages of output that were lost
//	pipeline.restarts              begins after an error
//	pipeline.checkpoints           that are complete
//	pipeline.recovered             prepared checkpoints of an earlier process that were committed
//	pipeline.aborted               transactions, and other outputs, that were taken back
//	pipeline.input                 messages in complete checkpoints
//	pipeline.output                messages that they made visible
//	pipeline.dropped               messages that came again and were processed already
//	pipeline.checkpoint.age        s, since the last checkpoint was complete, or since Watch: what a pipeline that stands still shows
//	pipeline.checkpoint.duration   s, of a checkpoint's steps
//	pipeline.checkpoint.bytes      of its record
//	pipeline.output.held           s, that the oldest output of a checkpoint had waited when it became visible
//
// All have the attribute onceline.pipeline, the name. What a counter can say is there from
// Watch on, as zero.
//
// # Spans
//
//	checkpoint NAME   the steps of a checkpoint: prepare, record, commit; with its number, messages and bytes
//
// A checkpoint that fails has none: Options.ErrorHook tells it, and pipeline.restarts and
// pipeline.aborted count it. What goes over the brokers meanwhile package broker/otel
// shows.
package otel
