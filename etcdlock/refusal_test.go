package etcdlock_test

import (
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// TestRefusals checks what the errors of acquisitions say while the
// server refuses the password, hangs, and is dead. It has no grace period.
func TestRefusals(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, "--bcrypt-cost=4") // logins are fast
	server.RequireLogin()
	const secret = "a secret of the program"
	addUser := func(password string) {
		server.Ctl("user", "add", "program:"+password)
		server.Ctl("user", "grant-role", "program", "root")
	}
	addUser(secret)
	jobtest.RefusalTest{
		Open: map[string]func(*testing.T) driver.Driver{"Session": func(t *testing.T) driver.Driver {
			return open(t, dialAs(t, "program", secret, []string{server.Addr()}))
		}},
		Secret: secret,
		Outages: []jobtest.Outage{
			{Name: "Password", Denied: true, Says: "invalid user ID or password", Begin: func(*testing.T) func() {
				server.Ctl("user", "delete", "program") // which ends its logins
				addUser("another")
				return func() {
					server.Ctl("user", "delete", "program")
					addUser(secret)
				}
			}},
			jobtest.Hung("answer", server),
			jobtest.Dead(server),
		},
	}.Run(t)
}
