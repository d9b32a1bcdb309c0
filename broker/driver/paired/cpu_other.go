//go:build !unix

package paired

import "time"

// processor is the processor time that this process has taken, and whether that is
// known.
func processor() (time.Duration, bool) { return 0, false }
