package redlock_test

import (
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
)

// TestRefusals checks what the errors of acquisitions say while a
// majority of the nodes refuses the password, or to write, is kept out after a restart, hangs, and
// is dead.
func TestRefusals(t *testing.T) {
	t.Parallel()
	c := start(t, 3, "user program on >"+password+" ~* &* +@all")
	c.init(t)
	for i := range c.servers {
		c.servers[i].Username = "program"
	}
	majority := c.nodes[:2]
	setPassword := func(p string) {
		for _, n := range majority {
			n.Must("ACL", "SETUSER", "program", "resetpass", ">"+p)
			n.Must("CLIENT", "KILL", "USER", "program")
		}
	}
	setRights := func(rights string) {
		for _, n := range majority {
			n.Must("ACL", "SETUSER", "program", rights)
		}
	}
	jobtest.RefusalTest{
		Open: map[string]func(*testing.T) driver.Driver{
			"Redlock": func(t *testing.T) driver.Driver { return open(t, c.servers, c.opts...) },
		},
		Secret: password,
		Outages: []jobtest.Outage{
			{Name: "Password", Denied: true, Says: "WRONGPASS", Begin: func(*testing.T) func() {
				setPassword("another")
				return func() { setPassword(password) }
			}},
			{Name: "Readonly", Denied: true, Says: "script", Begin: func(*testing.T) func() { // each version has its own words
				setRights("-set")
				return func() { setRights("+set") }
			}},
			{Name: "Grace", Says: "they take part within ", Begin: func(t *testing.T) func() {
				for _, n := range majority {
					n.Kill()
					n.Restart()
				}
				return func() {
					for _, n := range c.nodes {
						n.Must("FLUSHALL")
					}
					c.init(t)
				}
			}},
			jobtest.Hung("it does not answer", majority[0], majority[1]),
			jobtest.Dead(majority[0], majority[1]),
		},
	}.Run(t)
}
