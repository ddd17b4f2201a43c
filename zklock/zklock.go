package zklock

import (
	"cmp"
	"sync"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

var _ driver.Driver = (*Driver)(nil)

// A Driver takes leases that are nodes of one session with a ZooKeeper ensemble. It is safe
// for concurrent use.
type Driver struct {
	conf config

	mu      sync.Mutex
	current *session // the latest one; nil before the first call

	leasesMu sync.Mutex        // locked last, when several mutexes are held
	leases   map[string]*lease // by path

	life *driverkit.Lifecycle
}

// New returns a driver whose locks are in the ensemble of the given servers, each a host or
// host:port. The list may name all members or some of them.
//
// New does not connect: the session begins with the first call that needs it. An option or a
// server's address that is invalid is a [driver.ErrInvalid].
func New(servers []string, opts ...Option) (*Driver, error) {
	c, err := configure(servers, opts)
	if err != nil {
		return nil, err
	}
	return &Driver{conf: c, leases: map[string]*lease{}, life: driverkit.NewLifecycle()}, nil
}

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Backend: "zookeeper",
		Tenure:  driver.TenureSession,
		Fencing: driver.FencingDurable,
		Fair:    true,
		Shared:  true,
		Slots:   true,

		TellsLoss: true, TellsWanted: true,

		RenewsAll:  true,
		SessionTTL: d.conf.timeout * 5 / 12, // see leaseTTL
		Assumptions: []string{
			"a majority of the ensemble keeps what it acknowledged: its disks are not lost, and it is not set up anew " +
				"under the same name",
			"the servers' clocks run at the rate of ours, and minSessionTimeout is two ticks at least",
			"a leader that is cut off from the majority steps down within 7/12 of a session's timeout: syncLimit ticks are " +
				"no more than that",
			"nobody else deletes or makes nodes below the root other than locks",
		},
	}
}

// Close implements [driver.Driver]. It ends the session, and with it all leases and waits. If a
// LockDelay still has to keep others out, or the server does not answer within a few seconds, the
// ensemble ends the session after its timeout.
func (d *Driver) Close() error {
	d.life.End(func() {
		if s := d.latestSession(); s != nil {
			s.terminate(driver.ErrClosed)
		}
	})
	return nil
}

// latestSession returns the latest session, or nil before the first call.
func (d *Driver) latestSession() *session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current
}

// check returns an error if the driver can't serve req.
func (d *Driver) check(req driver.Request) error {
	if req.Detached {
		return driver.Invalidf("request: a lock in ZooKeeper ends with the session of the process that took it")
	}
	return cmp.Or(req.Check(), d.conf.checkName(req.Name))
}
