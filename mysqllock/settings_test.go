package mysqllock_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

// The settings of the user's connections do not affect locks.
func TestSettings(t *testing.T) {
	t.Parallel()
	server := database(t)
	plain := newDriver(t, server.DSN())
	slack := livetest.Slack(t)
	for name, params := range map[string][]string{
		"AutocommitOffSerializable": {"AutoCommit=0", "tx_isolation=%27SERIALIZABLE%27"},
		"Interpolated":              {"interpolateParams=true", "parseTime=true", "loc=Asia%2FTokyo", "clientFoundRows=true"},
		"ReadCommitted":             {"tx_isolation=%27READ-COMMITTED%27"},
		"ReadUncommitted":           {"tx_isolation=%27READ-UNCOMMITTED%27"},
		"FarLatin1":                 {"charset=latin1", "time_zone=" + url.QueryEscape("'+13:00'")},
		"OddMode": {"character_set_connection=utf16",
			"sql_mode=" + url.QueryEscape("'ORACLE,EMPTY_STRING_IS_NULL,HIGH_NOT_PRECEDENCE,SIMULTANEOUS_ASSIGNMENT'")},
		"NoRows":               {"sql_select_limit=0"},
		"SmallSelects":         {"max_join_size=1", "sql_safe_updates=1"},
		"StoppedClock":         {"timestamp=100", "tx_read_only=1"},
		"ShortStatements":      {"max_statement_time=0.3", "innodb_lock_wait_timeout=1"},
		"ClientTimeouts":       {"readTimeout=1ns", "writeTimeout=1ns", "rejectReadOnly=true"},
		"IdleConnectionsEnded": {"wait_timeout=1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDriver(t, server.DSN(params...))
			name += " ☕ 'x' \\"
			req := request(name, "a")
			req.Holder = driver.Holder{Host: "höst", PID: 1, Label: `"it's" \ ☕`}
			l := acquire(t, d, req)
			mustBeHeld(t, plain, request(name, "b"))
			if st, err := plain.Status(testContext(t), name); err != nil || len(st.Holders) != 1 ||
				st.Holders[0].Holder != req.Holder ||
				st.Holders[0].Held > 10*time.Second || st.Holders[0].Left < 50*time.Second {
				t.Errorf("Status = %+v, %v", st, err)
			}
			if err := d.List(testContext(t), "", func(driver.Status) bool { return true }); err != nil {
				t.Errorf("List = %v", err)
			}
			w := livetest.Waiting(t, plain, request(name, "b"))
			began := time.Now()
			release(t, l)
			next := w.Get(t)
			took := w.At.Sub(began)
			if next.Grant().Token <= l.Grant().Token || took > soonEnough+slack() {
				t.Errorf("next token %d after %d, %v after the release", next.Grant().Token, l.Grant().Token, took)
			}
			w = livetest.Waiting(t, d, request(name, "c"))
			time.Sleep(1500 * time.Millisecond) // longer than the limits above
			began = time.Now()
			release(t, next)
			last := w.Get(t)
			took = w.At.Sub(began)
			if took > soonEnough+slack() {
				t.Errorf("granted %v after the release", took)
			}
			if err := d.Renew(testContext(t), []driver.Lease{last, l})[0].Err; err != nil {
				t.Errorf("Renew = %v", err)
			}
			release(t, last)
		})
	}
}

// TestMisconfigured checks that what only another configuration can mend is an error at once.
func TestMisconfigured(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	for name, dsn := range map[string]string{
		"Database": strings.Replace(server.DSN(), "/"+mysqltest.Database, "/nowhere", 1),
		"Variable": server.DSN("no_such_variable=1"),
		"Value":    server.DSN("tx_isolation=%27nonsense%27"),
		"TimeZone": server.DSN("time_zone=%27nowhere%27"),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := newDriver(t, dsn).Acquire(testContext(t), request("a", "a")); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("Acquire = %v, want ErrInvalid", err)
			}
		})
	}
}
