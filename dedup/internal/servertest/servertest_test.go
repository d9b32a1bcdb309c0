package servertest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/onceline/onceline/localstack"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// told is a test whose ends are noted.
type told struct {
	testing.TB
	end     string
	cleanup []func()
}

func (t *told) Helper()                          {}
func (t *told) Cleanup(f func())                 { t.cleanup = append(t.cleanup, f) }
func (t *told) Skip(args ...any)                 { t.stop("skip: " + fmt.Sprint(args...)) }
func (t *told) Skipf(format string, args ...any) { t.stop("skip: " + fmt.Sprintf(format, args...)) }
func (t *told) Fatal(args ...any)                { t.stop("fatal: " + fmt.Sprint(args...)) }
func (t *told) Error(args ...any)                { t.end += "error: " + fmt.Sprint(args...) }
func (t *told) stop(end string)                  { t.end = end; runtime.Goexit() }

type closing struct{ err error }

func (c closing) Close(context.Context) error { return c.err }

// TestStart: a server that isn't there is a test that didn't run, and says so; where it
// is required, a failure.
func TestStart(t *testing.T) {
	broken := errors.New("broken")
	missing := fmt.Errorf("%w: install it", localstack.ErrNotInstalled)
	for _, c := range []struct {
		local, require string
		err, close     error
		want           string
	}{
		{"", "", nil, nil, "skip: needs a server: set ONCELINE_LOCAL=1 or ONCELINE_REQUIRE=x"},
		{"", "y,xx", nil, nil, "skip: needs"},
		{"1", "", nil, nil, ""},
		{"", "y,x", nil, nil, ""},
		{"1", "", missing, nil, "skip: " + missing.Error()},
		{"1", "x", missing, nil, "fatal: " + missing.Error()},
		{"1", "", broken, nil, "fatal: broken"},
		{"1", "", nil, broken, "error: broken"},
	} {
		t.Setenv("ONCELINE_LOCAL", c.local)
		t.Setenv("ONCELINE_REQUIRE", c.require)
		tb, done := &told{TB: t}, make(chan struct{})
		go func() {
			defer close(done)
			Start(tb, "x", "a server", func(context.Context) (closing, error) { return closing{c.close}, c.err })
		}()
		<-done
		for _, f := range tb.cleanup {
			f()
		}
		if !strings.HasPrefix(tb.end, c.want) || (c.want == "") != (tb.end == "") {
			t.Errorf("%+v: %q", c, tb.end)
		}
	}
}
