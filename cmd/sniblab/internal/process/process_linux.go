package process

import "syscall"

// kill kills a process group, which may just have ended.
func kill(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
