package etcdlock

import (
	"crypto/rand"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

var _ driver.Driver = (*Driver)(nil)

// A Driver takes locks in etcd. It is safe for concurrent use.
type Driver struct {
	client  *clientv3.Client // the user's, who closes it
	timeout time.Duration    // whole seconds
	nonces  nonces

	openSem chan struct{} // of capacity 1: held while a session is begun
	session atomic.Pointer[session]
	queues  watchedQueues

	life *driverkit.Lifecycle // ends with Close
}

// New returns a driver whose locks are keys in the etcd of client. The first acquisition begins
// its session.
//
// The client belongs to the caller: the driver never closes it, and must be closed before it.
// Set the client's DialKeepAliveTime and DialKeepAliveTimeout, so that it leaves a member that
// hangs. Without them, every third call may go to that member, and get no answer.
//
// New does not contact the server. An option that is invalid is a [driver.ErrInvalid].
func New(client *clientv3.Client, opts ...Option) (*Driver, error) {
	timeout, err := 15*time.Second, error(nil)
	if client == nil {
		err = driver.Invalidf("client: it is nil")
	}
	for _, opt := range opts {
		if timeout = opt.timeout; timeout < time.Second || timeout > 24*time.Hour {
			err = errors.Join(err, driver.Invalidf("Timeout %v: it must be between 1 s and 24 h", timeout))
		}
	}
	if err != nil {
		return nil, err
	}
	d := &Driver{client: client, openSem: make(chan struct{}, 1), life: driverkit.NewLifecycle()}
	d.timeout = (timeout + time.Second - 1).Truncate(time.Second)
	d.nonces.driver = strings.ToLower(rand.Text()[:16])
	d.queues.byName = map[string]*watchedQueue{}
	return d, nil
}

// Info implements [driver.Driver].
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Backend: "etcd",
		Tenure:  driver.TenureSession,
		Fencing: driver.FencingDurable,
		Fair:    true,
		Shared:  true,
		Slots:   true,

		TellsLoss: true, TellsWanted: true,

		RenewsAll:  true,
		SessionTTL: d.timeout,
		Assumptions: []string{
			"a majority of the members keeps what it has acknowledged; a cluster from a snapshot was restored with " +
				"--bump-revision",
			"the members' clocks run at the rate of the clients'",
			"nobody else changes or deletes keys under the names of locks",
		},
	}
}

// Close implements [driver.Driver]. It ends the session, and with it all leases that were not
// released. If etcd does not answer within 2 s, or one of them has a LockDelay, they all expire.
// The client stays open.
func (d *Driver) Close() error {
	d.life.End(func() {
		if s := d.session.Load(); s != nil {
			s.close(driver.ErrClosed)
		}
	})
	return nil
}

// check returns an error if the driver can't serve req.
func (d *Driver) check(req driver.Request) error {
	if req.Detached {
		return driver.Invalidf(
			"request: a lease in a session can't outlive it; use a backend whose leases last by themselves")
	}
	return req.Check()
}
