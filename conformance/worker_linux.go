package conformance

import "syscall"

// dieWithParent makes a worker end when this process does, also one that is stopped
// and so can't see that its input has ended.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
