package quorumtest

import (
	"time"

	"github.com/sniblock/snib/driver"
)

// A clock shows an actor's time. It drifts, can be made to jump, and can stand still. Its
// reading is a function of the true time, which only the world and its judge can see.
type clock struct {
	setAt        time.Duration // the true time at which it was last set
	shown        time.Duration // what it showed at that time
	ppm          int64         // how much faster it runs than the true time, in parts per million
	stoppedUntil time.Duration // the true time until which it stands still
}

// maxDrift keeps the rates of any two clocks within the one part in a hundred that package
// quorum allows.
const maxDrift = 4900

// read returns what the clock shows at a true time, which must not be before it was last set.
func (c *clock) read(now time.Duration) time.Duration {
	ran := max(0, now-max(c.setAt, c.stoppedUntil))
	return c.shown + ran + ran*time.Duration(c.ppm)/1e6
}

// jump sets the clock forward or back.
func (c *clock) jump(now, by time.Duration) { c.shown, c.setAt = c.read(now)+by, now }

// stop makes the clock stand still until a true time.
func (c *clock) stop(now, until time.Duration) {
	c.jump(now, 0)
	c.stoppedUntil = max(c.stoppedUntil, until)
}

// instant returns what the clock shows, as package quorum takes it.
func (c *clock) instant(now time.Duration) driver.Instant { return driver.Instant{}.Add(c.read(now)) }
