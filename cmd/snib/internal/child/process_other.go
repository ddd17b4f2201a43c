//go:build unix && !linux

package child

// waiter returns a function that returns when the process pid has ended.
func waiter(pid int) (func(), error) { return pollWaiter(pid) }
