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
	if !ok || !slices.Contains(broker.Schemes(), scheme) {
		return conformance.Target{}, fmt.Errorf("target: %w: not a URL of a known scheme; there are: %s",
			broker.ErrInvalid, strings.Join(broker.Schemes(), ", "))
	}
	var t conformance.Target
	switch mode := parameter(raw, "mode"); {
	case scheme == "nats":
		t = natsTarget("nats-url")
	case scheme == "kafka" && mode == "share":
		t = kafkaShareTarget("kafka-share-url")
	case scheme == "kafka":
		t = kafkaGroupTarget("kafka-group-url")
	default:
		return t, fmt.Errorf("target: %w: scheme %q names nothing outside of this process", broker.ErrInvalid, scheme)
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
		if scheme == "nats" {
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
