package mysql

import (
	"fmt"
	"strings"
	"testing"
)

// TestVerifyLog: a binary log that isn't flushed with each commit is refused.
func TestVerifyLog(t *testing.T) {
	for _, c := range []struct {
		log, sync string
		bad       bool
	}{{"0", "0", false}, {"OFF", "0", false}, {"1", "1", false}, {"ON", "1", false}, {"1", "0", true}, {"ON", "100", true}} {
		var said []string
		verifyLog(c.log, c.sync, func(format string, a ...any) { said = append(said, fmt.Sprintf(format, a...)) })
		if (len(said) > 0) != c.bad || c.bad && !strings.Contains(said[0], "sync_binlog is "+c.sync) {
			t.Errorf("%+v: %q", c, said)
		}
	}
}
