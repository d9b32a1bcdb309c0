//go:build unix

package paired

import (
	"syscall"
	"time"
)

// processor is the processor time that this process has taken, and whether that is
// known.
func processor() (time.Duration, bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
