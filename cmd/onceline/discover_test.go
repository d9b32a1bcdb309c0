package main

import (
	"encoding/json"
	"go/parser"
	"strings"
	"testing"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack"
)

func TestDiscover(t *testing.T) {
	t.Parallel()
	e, err := localstack.StartNATS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(t.Context())
	args := []string{"discover", "--target", e.URL(), "--claim", "settle.answer", "--claim", "publish.ack.durable"}
	source, stderr, code := onceline(t.Context(), args...)
	if code != 0 {
		t.Fatal(code, stderr)
	}
	if _, err := parser.ParseExpr(strings.TrimSpace(source)); err != nil {
		t.Errorf("%v:\n%s", err, source)
	}
	// Nobody can restart what is named by a URL: what needs it is left open.
	if !strings.Contains(source, `"settle.answer"): {Declared: "confirmed"}`) || !strings.Contains(source, "// publish.ack.durable: not verifiable") {
		t.Error(source)
	}
	stdout, _, code := onceline(t.Context(), append(args, "--json")...)
	var b boundary.Boundary
	if err := json.Unmarshal([]byte(stdout), &b); err != nil || code != 0 || b.Entries[boundary.SettleAnswer].Declared != boundary.Confirmed || len(b.Entries) != 1 {
		t.Errorf("exit %d, %v: %s", code, err, stdout)
	}
	if _, stderr, code = onceline(t.Context(), "discover"); code != report.ExitUsage || !strings.Contains(stderr, "target") {
		t.Error(code, stderr)
	}
}
