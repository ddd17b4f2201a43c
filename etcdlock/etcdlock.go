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
	client *clientv3.Client // the user's, who closes it
	conf   config
	nonces nonces

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
	c, err := configure(client, opts)
	if err != nil {
		return nil, err
	}
	d := &Driver{client: client, conf: c, openSem: make(chan struct{}, 1), life: driverkit.NewLifecycle()}
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
		SessionTTL: d.conf.timeout,
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

// A config holds the settings that the options made.
type config struct {
	timeout time.Duration // whole seconds
}

func configure(client *clientv3.Client, opts []Option) (c config, err error) {
	c = config{timeout: 15 * time.Second}
	if client == nil {
		err = driver.Invalidf("client: it is nil")
	}
	for _, opt := range opts {
		err = errors.Join(err, opt.apply(&c))
	}
	return c, err
}
