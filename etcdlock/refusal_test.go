package etcdlock_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

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
			client, err := clientv3.New(clientv3.Config{
				Endpoints: []string{server.Addr()}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(), Username: "program",
				Password: secret,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { client.Close() })
			return open(t, client)
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
