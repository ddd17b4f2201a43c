package redislock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// TestRefusals checks what the errors of acquisitions say while the
// server refuses the password, or to write, is in its grace period, hangs, and is dead.
func TestRefusals(t *testing.T) {
	node := used(t, redistest.Single(t, redistest.Password(password), "user program on >"+password+" ~* &* +@all"))
	setPassword := func(p string) {
		node.Must("ACL", "SETUSER", "program", "resetpass", ">"+p)
		node.Must("CLIENT", "KILL", "USER", "program")
	}
	o := at(node.Addr())
	o.Username = "program"
	jobtest.RefusalTest{
		Open:   map[string]func(*testing.T) driver.Driver{"Single": func(t *testing.T) driver.Driver { return open(t, o) }},
		Secret: password,
		Outages: []jobtest.Outage{
			{Name: "Password", Denied: true, Says: "WRONGPASS", Begin: func(*testing.T) func() {
				setPassword("another")
				return func() { setPassword(password) }
			}},
			{Name: "Readonly", Denied: true, Says: "script", Begin: func(*testing.T) func() { // each version has its own words
				node.Must("ACL", "SETUSER", "program", "-set")
				return func() { node.Must("ACL", "SETUSER", "program", "+set") }
			}},
			{Name: "Grace", Says: "grants nothing for another ", Has: hasEnd, Begin: func(*testing.T) func() {
				node.Kill()
				node.Restart()
				return func() { used(t, node) }
			}},
			jobtest.Hung("no answer", node),
			jobtest.Dead(node),
		},
	}.Run(t)
}

// hasEnd reports whether an error says when the grace period ends.
func hasEnd(err error) bool {
	grace, ok := errors.AsType[*redislock.GraceError](err)
	return ok && grace.Left > 0 && grace.Left < time.Minute
}
