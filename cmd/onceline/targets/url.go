package targets

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// ByURL returns a target for a broker that runs elsewhere, by the URL that
// broker.Open takes. Its boundary is the one which the scheme's adapter
// declares. Probes that need faults or restarts are not verifiable on it.
func ByURL(raw string) (conformance.Target, error) {
	scheme, _, ok := strings.Cut(raw, "://")
	// What mem names lives in one process, so it is no broker that runs elsewhere.
	schemes := slices.DeleteFunc(broker.Schemes(), func(s string) bool { return s == "mem" })
	if !ok || !slices.Contains(schemes, scheme) {
		return conformance.Target{}, fmt.Errorf("target: %w: not a URL of a known scheme; there are: %s",
			broker.ErrInvalid, strings.Join(schemes, ", "))
	}
	isNATS := scheme == "nats" || scheme == "nats+tls"
	var t conformance.Target
	switch mode := parameter(raw, "mode"); {
	case isNATS:
		t = natsTarget("nats-url")
	case scheme == "kafka" && mode == "share":
		t = kafkaShareTarget("kafka-share-url")
	case scheme == "kafka":
		t = kafkaGroupTarget("kafka-group-url")
	default:
		return t, fmt.Errorf("target: %w: scheme %q has no target", broker.ErrInvalid, scheme)
	}
	t.Kind, t.Real = report.KindLocal, true
	t.Start = func(ctx context.Context) (*conformance.Instance, error) {
		c, err := broker.Open(ctx, raw)
		if err != nil {
			return nil, err
		}
		if err := c.Close(ctx); err != nil {
			return nil, err
		}
		i := &conformance.Instance{URL: raw,
			Open: func(ctx context.Context) (broker.Conn, error) { return broker.Open(ctx, raw) }}
		if isNATS {
			i = natsInstance(i)
		}
		return i, nil
	}
	return t, nil
}

// parameter reads one parameter of a URL whose host may be a list.
func parameter(raw, name string) string {
	_, query, _ := strings.Cut(raw, "?")
	v, err := url.ParseQuery(query)
	if err != nil {
		return ""
	}
	return v.Get(name)
}
