package targets

import (
	"context"
	"database/sql"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/pipeline"
)

// WrongPipelines is a store for checkpoints whose pipelines write by another sink than
// package pipeline's, or through another publisher; nil changes nothing.
func WrongPipelines(name string, sink func(p conformance.Pipeline, to broker.Conn, s pipeline.Sink[*sql.Tx]) pipeline.Sink[*sql.Tx], publish func(broker.Publisher) broker.Publisher) conformance.Store {
	ps := pipes{publish: publish}
	if sink != nil {
		ps.sink = func(r *piping, s pipeline.Sink[*sql.Tx]) pipeline.Sink[*sql.Tx] { return sink(r.Pipeline, r.to, s) }
	}
	return conformance.Store{Kind: conformance.Checkpoints, Name: name, Make: makeFolder,
		Pipelines: &conformance.Pipelines{Run: func(ctx context.Context, p conformance.Pipeline) error { return ps.run(ctx, p) }, Beside: beside}}
}
