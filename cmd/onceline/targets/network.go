package targets

import (
	"context"
	"fmt"
	"strings"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/localstack"
)

// network is the instance of an emulator that is reached over loopback. query is
// added to its URL.
func network(e localstack.Emulator, query string) *conformance.Instance {
	url := join(e.URL(), query)
	return &conformance.Instance{
		Open:     func(ctx context.Context) (broker.Conn, error) { return broker.Open(ctx, url) },
		URL:      url,
		Versions: e.Versions(),
		Inject:   func(f conformance.Fault) (conformance.Injection, error) { return inject(e, f) },
		Restart:  e.Restart,
		Kill:     e.Kill,
		Close:    e.Close,
	}
}

// join adds a query, with its question mark, to a URL that may have one.
func join(url, query string) string {
	if query != "" && strings.Contains(url, "?") {
		query = "&" + query[1:]
	}
	return url + query
}

// inject translates the suite's fault into the emulator's.
func inject(e interface {
	Inject(localstack.Fault) *localstack.Injection
}, f conformance.Fault) (conformance.Injection, error) {
	ops := map[conformance.FaultOp]localstack.Op{
		conformance.OnPublish: localstack.Publish,
		conformance.OnReceive: localstack.Receive,
		conformance.OnSettle:  localstack.Settle,
	}
	kinds := map[conformance.FaultKind]localstack.Kind{
		conformance.LoseRequest:  localstack.LoseRequest,
		conformance.LoseResponse: localstack.LoseResponse,
		conformance.CutRequest:   localstack.Cut,
	}
	op, known := ops[f.Op]
	kind, also := kinds[f.Kind]
	if !known || !also {
		return nil, fmt.Errorf("%s: %w", f, broker.ErrUnsupported)
	}
	i := e.Inject(localstack.Fault{Op: op, Kind: kind, Match: f.Match, Times: f.Times, Cut: f.Cut})
	return i, i.Err()
}
