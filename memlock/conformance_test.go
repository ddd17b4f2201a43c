package memlock_test

import (
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/drivertest"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/memlock"
)

// TestConformance runs the suite in fake time, where its checks are exact.
func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{Bubble: true, Fresh: func(*testing.T) drivertest.Harness {
		s := new(memlock.Store)
		return drivertest.Harness{
			Open: func(*testing.T) driver.Driver { return s.Open() },
			Kill: killer(s),
		}
	}})
}

// TestConformanceSevered runs the suite through package fault, for the cases that cut the driver
// off from its store. The wrapper must not cost the driver an ability.
func TestConformanceSevered(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{Bubble: true, Fresh: func(*testing.T) drivertest.Harness {
		s := new(memlock.Store)
		return drivertest.Harness{
			Open: func(*testing.T) driver.Driver { return fault.Wrap(s.Open(), fault.Plan{}) },
			Kill: killer(s),
			Sever: func(_ *testing.T, d driver.Driver) func() {
				f := d.(*fault.Driver)
				f.Sever(fault.Hang)
				return f.Heal
			},
		}
	}})
}

// TestConformanceWallClock runs the suite in real time, as for stores outside of the process.
func TestConformanceWallClock(t *testing.T) {
	s := new(memlock.Store)
	drivertest.Run(t, drivertest.Harness{
		Open: func(*testing.T) driver.Driver { return s.Open() },
		Kill: killer(s),
	})
}

// killer returns Harness.Kill for a store: a killed process leaves a lease that nobody renews.
func killer(s *memlock.Store) func(*testing.T, driver.Request) func() {
	return func(t *testing.T, req driver.Request) func() {
		return livetest.Keep(t, s.Open(), req)
	}
}
