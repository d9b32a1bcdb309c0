package localstack

import (
	"strings"
	"testing"
)

func TestStillInUse(t *testing.T) {
	const (
		old    = "FATAL:  terminating connection due to unexpected postmaster exit"
		inUse  = "FATAL:  pre-existing shared memory block (key 132681, ID 688159) is still in use"
		hint   = "HINT:  Terminate any old server processes"
		broken = "FATAL:  could not open file"
	)
	for said, want := range map[string]bool{
		strings.Join([]string{old, inUse, hint}, "\n"):               true,
		strings.Join([]string{old, inUse, hint, old, old}, "\n"):     true,
		strings.Join([]string{inUse, hint, old, broken, hint}, "\n"): false,
		strings.Join([]string{old, broken}, "\n"):                    false,
		"": false,
	} {
		if got := stillInUse(said); got != want {
			t.Errorf("%v of %q", got, said)
		}
	}
}
