package rediskit

import (
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

// A HeldError says how long the present holders' leases last. It matches [driver.ErrHeld].
type HeldError struct {
	Left time.Duration // negative if a key has no expiry, which a foreign client may have made
}

func (e *HeldError) Error() string {
	if e.Left < 0 {
		return fmt.Sprintf("%v, by a key that never ends", driver.ErrHeld)
	}
	return fmt.Sprintf("%v; its lease lasts another %v", driver.ErrHeld, e.Left)
}

// Is reports whether target is [driver.ErrHeld].
func (e *HeldError) Is(target error) bool { return target == driver.ErrHeld }
