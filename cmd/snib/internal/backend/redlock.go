package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/redlock/redlockadmin"
)

func (u *serverURL) openNodes(ctx context.Context) (driver.Driver, error) {
	servers, err := u.servers()
	if err != nil {
		return nil, err
	}
	d, err := redlock.Open(ctx, servers, u.redlock...)
	if err != nil {
		return nil, err
	}
	return &redlockStore{d, u}, nil
}

// servers returns how to connect to each node.
func (u *serverURL) servers() (servers []rueidis.ClientOption, err error) {
	o, err := u.options()
	if err != nil {
		return nil, err
	}
	for _, host := range u.hosts {
		o.InitAddress = []string{host}
		servers = append(servers, o)
	}
	return servers, nil
}

// Redlock is the set of nodes that a URL names, for their operator.
type Redlock struct {
	URL string // canonical, without secrets
	redlockadmin.Admin
}

// Nodes returns the nodes of a URL of Redlock. It contacts none of them.
func Nodes(url string) (*Redlock, error) {
	scheme, rest, _ := strings.Cut(url, ":")
	k, ok := kindOf(scheme)
	if !ok || k.family != redlockFamily {
		return nil, fmt.Errorf("%w URL: it is not a URL of Redlock; one begins with redlock:// or redlocks://", ErrConfig)
	}
	u, err := k.parse(rest)
	if err != nil {
		return nil, err
	}
	servers, err := u.servers()
	if err != nil {
		return nil, err
	}
	return &Redlock{URL: u.String(), Admin: redlock.Admin(servers, u.redlock...)}, nil
}

// Reach reports a problem that waiting does not solve: a node denies access, or
// most nodes don't answer.
func (r *Redlock) Reach(ctx context.Context) error {
	all, err := r.Examine(ctx)
	var silent []error
	for _, n := range all {
		if Denied(n.Err) {
			return r.Explain(fmt.Errorf("%s: %w", n.Address, n.Err))
		}
		if n.State == redlockadmin.NodeUnreachable {
			silent = append(silent, fmt.Errorf("%s: %w", n.Address, n.Err))
		}
	}
	if len(silent) > len(all)/2 {
		err = fmt.Errorf("%d of %d nodes do not answer: %w", len(silent), len(all), errors.Join(silent...))
	}
	return r.Explain(err)
}

// Explain adds the URL to an error about the nodes. If the configuration must be wrong, the error
// matches ErrConfig.
func (r *Redlock) Explain(err error) error {
	if errors.Is(err, driver.ErrInvalid) {
		return fmt.Errorf("%w: %w", ErrConfig, withURL(r.URL, err))
	}
	return withURL(r.URL, err)
}
