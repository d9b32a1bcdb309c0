//go:build !linux

package crashes

import "syscall"

// dieWithParent has nothing to add here: what is stopped gets SIGHUP when this process
// ends, for its group is orphaned then.
func dieWithParent(*syscall.SysProcAttr) {}
