package crashes

import "syscall"

// dieWithParent makes a consumer end when this process does, also one that is frozen
// and so can't see that its input has ended.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
