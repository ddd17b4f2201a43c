package redlock

import (
	"context"

	"github.com/redis/rueidis"
)

// OpenClients is Open with clients, by address, in place of those that it would make.
func OpenClients(
	ctx context.Context, servers []rueidis.ClientOption, clients map[string]rueidis.Client,
) (*Driver, error) {
	d, err := newDialingDriver(servers, nil)
	if err != nil {
		return nil, err
	}
	for _, n := range d.nodes {
		n.dial = func(context.Context) (rueidis.Client, error) { return clients[n.address], nil }
	}
	return start(ctx, d)
}

// Topics returns the number of channels that a driver needs.
func Topics(d *Driver) int {
	l := &d.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.topics)
}

// KeepUnneeded sets to how many channels a connection stays subscribed that are not needed.
func KeepUnneeded(d *Driver, n int) {
	l := &d.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maxUnneeded = n
}
