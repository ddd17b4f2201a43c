package quorumtest

import (
	"time"

	"github.com/sniblock/snib/driver"
)

// A clock shows an actor's time. It drifts, can be made to jump, and can stand still. All of what it shows is a function of the true
// time, which nobody but the world and its judge can see.
type clock struct {
	set   time.Duration // the true time at which it was set last
	shown time.Duration // what it showed then
	ppm   int64         // how much faster it goes than the true time, in parts of a million
	stops time.Duration // the true time until which it stands still
}

// maxDrift keeps any two clocks within the one part in a hundred that package quorum allows for.
const maxDrift = 4900

// read returns what the clock shows at a true time, which is no earlier than it was set.
func (c *clock) read(now time.Duration) time.Duration {
	ran := max(0, now-max(c.set, c.stops))
	return c.shown + ran + ran*time.Duration(c.ppm)/1e6
}

// jump sets the clock forward, or back.
func (c *clock) jump(now, by time.Duration) { c.shown, c.set = c.read(now)+by, now }

// stop has the clock stand still until a true time.
func (c *clock) stop(now, until time.Duration) {
	c.jump(now, 0)
	c.stops = max(c.stops, until)
}

// instant is what the clock shows, as package quorum takes it.
func (c *clock) instant(now time.Duration) driver.Instant { return driver.Instant{}.Add(c.read(now)) }
