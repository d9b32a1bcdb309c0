package conformance

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes a worker end when this process does, also one that is stopped
// and so can't see that its input has ended.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
