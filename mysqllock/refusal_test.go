package mysqllock_test

import (
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

// TestRefusals checks what the errors of acquisitions say while the
// server refuses the password, hangs, and is dead. It has no grace period.
func TestRefusals(t *testing.T) {
	const secret = "a-secret-of-the-program"
	server := mysqltest.Start(t)
	db := dial(t, server.DSN())
	must(t, db, "CREATE USER program@'%' IDENTIFIED BY '"+secret+"'")
	must(t, db, "GRANT ALL ON *.* TO program@'%'")
	setPassword := func(t *testing.T, password string) {
		must(t, db, "ALTER USER program@'%' IDENTIFIED BY '"+password+"'")
		must(t, db, "KILL USER program")
	}
	dsn := "program:" + secret + "@tcp(" + server.Addr() + ")/" + mysqltest.Database
	jobtest.RefusalTest{
		Open: map[string]func(*testing.T) driver.Driver{
			"Rows": func(t *testing.T) driver.Driver { return newDriver(t, dial(t, dsn)) },
		},
		Secret: secret,
		Outages: []jobtest.Outage{
			{Name: "Password", Denied: true, Says: "Access denied", Begin: func(t *testing.T) func() {
				setPassword(t, "another")
				return func() { setPassword(t, secret) }
			}},
			jobtest.Hung("no answer", server),
			jobtest.Dead(server),
		},
	}.Run(t)
}
