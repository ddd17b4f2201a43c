package rows

import (
	"time"

	"github.com/sniblock/snib/driver"
)

// Lease returns the lease with the given id on a lock, without a request to the store. Another
// process may have acquired it. If there is no such lease, its methods and Renew answer
// [driver.ErrLost].
func (d *Driver) Lease(name, id string, ttl time.Duration) *Lease {
	return &Lease{d: d, Req: driver.Request{Name: name, Owner: id, TTL: ttl}, Nonce: d.newNonce()}
}

// ID returns the id of the lease.
func (l *Lease) ID() string { return l.Req.Owner }
