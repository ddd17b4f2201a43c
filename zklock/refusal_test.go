package zklock_test

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/zklock"
)

// TestRefusals checks what the errors of acquisitions say while the root
// refuses the password, and while the server hangs and is dead. A ZooKeeper accepts any password at
// the login; its ACLs refuse it. It has no grace period.
func TestRefusals(t *testing.T) {
	t.Parallel()
	server := zktest.Single(t)
	single := []string{server.Addr()}
	createRoot(t, newStranger(t, server.Addr()), secret)
	jobtest.RefusalTest{
		Open: map[string]func(*testing.T) driver.Driver{
			"Session": func(t *testing.T) driver.Driver { return newDriver(t, single) }},
		Secret: secret,
		Outages: []jobtest.Outage{
			{
				Name: "Password", Denied: true, Says: "the password may be wrong", Has: jobtest.Is(zk.ErrNoAuth),
				Begin: func(*testing.T) func() { return func() {} },
				Open: func(t *testing.T) driver.Driver {
					return newDriver(t, single, zklock.Digest("snib", "wrong"))
				},
			},
			jobtest.Hung("answer", server),
			jobtest.Dead(server),
		},
	}.Run(t)
}
