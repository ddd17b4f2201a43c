//go:build unix

package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// wantFindings checks the findings of snib doctor that are not ok, as "verdict check". A store on a
// busy machine may need several tries until it answers in time.
func wantFindings(t *testing.T, url string, want ...string) {
	t.Helper()
	slices.Sort(want)
	livetest.Await(t, "findings of doctor", func() error {
		out, code := snib(t, "doctor", url, "-o", "json")
		if strings.Contains(out, pgtest.Password()) || strings.Contains(out, mysqltest.Password()) {
			t.Fatalf("a password is shown: %s", out)
		}
		var doc struct {
			Schema string
			Checks []struct{ Check, Verdict, Value, Advice string }
		}
		if err := json.Unmarshal([]byte(out), &doc); err != nil || doc.Schema != "snib.doctor/1" || len(doc.Checks) < 4 {
			return fmt.Errorf("exit code %d, %w: %s", code, err, out)
		}
		var got []string
		wantCode := 0
		for _, c := range doc.Checks {
			if c.Verdict != "ok" {
				got = append(got, c.Verdict+" "+c.Check)
			}
			if c.Verdict == "unmet" {
				wantCode = 1
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) || code != wantCode {
			return fmt.Errorf("exit code %d, findings %q, want %q: %s", code, got, want, out)
		}
		return nil
	})
}

// TestDoctorPostgres examines sound servers, and servers that break a promise.
func TestDoctorPostgres(t *testing.T) {
	t.Parallel()
	newStore(t)
	sound := pgtest.Start(t)
	wantFindings(t, sound.URL()+"&pool_max_conns=1")
	wantFindings(t, sound.URL()+"&options=-c%20synchronous_commit%3Doff", "unmet synchronous_commit")
	t.Run("HugeToken", func(t *testing.T) {
		pool, err := pgxpool.New(t.Context(), sound.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		if _, err := pool.Exec(t.Context(), "INSERT INTO snib_locks VALUES ('forged', 9223372036854775807, 0, '[]', '[]', 0)"); err != nil {
			t.Fatal(err)
		}
		wantFindings(t, sound.URL(), "unmet last-token")
		if _, err := pool.Exec(t.Context(), "DELETE FROM snib_locks WHERE name = 'forged'"); err != nil {
			t.Fatal(err)
		}
		wantFindings(t, sound.URL())
	})
	wantFindings(t, pgtest.Start(t, "fsync=off", "full_page_writes=off").URL(), "unmet fsync", "unmet full_page_writes")
	t.Run("Pooler", func(t *testing.T) {
		wantFindings(t, pgtest.Pool(t, sound, "session").URL(), "note pooler")
	})
}

// TestDoctorMySQL examines sound servers, and servers that break a promise.
func TestDoctorMySQL(t *testing.T) {
	t.Parallel()
	newStore(t)
	sound := mysqltest.Start(t)
	wantFindings(t, mysqlURL(sound.Addr()))
	t.Run("HugeToken", func(t *testing.T) {
		db, err := sql.Open("mysql", sound.DSN())
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.ExecContext(t.Context(), "UPDATE snib_locks SET token = 9223372036854775807 WHERE name LIKE 'snib%'"); err != nil {
			t.Fatal(err)
		}
		wantFindings(t, mysqlURL(sound.Addr()), "unmet last-token")
	})
	wantFindings(t, mysqlURL(mysqltest.Start(t, "innodb-flush-log-at-trx-commit=2").Addr()), "unmet innodb_flush_log_at_trx_commit")
}

// TestDoctorReplicas examines a master that would go on granting locks without its replica.
func TestDoctorReplicas(t *testing.T) {
	newStore(t)
	s := redistest.Sentinel(t)
	s.Master().Used()
	url := "redis+sentinel://" + strings.Join(s.Sentinels(), ",") + "/" + s.MasterName()
	if out, code := snib(t, "doctor", url); code != 78 || !strings.Contains(out, "min-replicas-to-write is 0 behind Sentinel") {
		t.Errorf("doctor of a master that would grant without replicas = %d, want 78 and the reason\n%s", code, out)
	}
	wantFindings(t, url+"?allow-split-brain=on", "note persistence", "unmet min-replicas-to-write")
}

// TestDoctorNoLock checks that the failure to take a lock is among the findings if others may
// explain it.
func TestDoctorNoLock(t *testing.T) {
	t.Parallel()
	newStore(t)
	node := redistest.Single(t)
	node.Used()
	node.Must("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
	node.Must("ACL", "SETUSER", "eve", "on", ">horse", "~hers:*", "&*", "+@all")
	wantFindings(t, "redis://eve:horse@"+node.Addr(), "note persistence", "unmet lock", "unmet maxmemory-policy")
}

// TestDoctorEtcd examines a sound cluster, also as a user who may only lock, and one that lacks a
// member.
func TestDoctorEtcd(t *testing.T) {
	t.Parallel()
	newStore(t)
	cluster := etcdtest.Cluster(t, 3)
	down, leader := cluster.Follower(), cluster.Leader()
	leader.Ctl("role", "add", "locks")
	leader.Ctl("role", "grant-permission", "locks", "--prefix=true", "readwrite", "")
	leader.Ctl("user", "add", "bob:builder")
	leader.Ctl("user", "grant-role", "bob", "locks")
	leader.RequireLogin()
	addrs := strings.Join(cluster.Addrs(), ",")
	url := "etcd://root:" + etcdtest.Password + "@" + addrs
	wantFindings(t, url)
	wantFindings(t, "etcd://bob:builder@"+addrs)
	down.Kill()
	wantFindings(t, url, "note member http://"+down.Addr())
}

// TestDoctorZooKeeper examines a sound ensemble, and ensembles that lack something.
func TestDoctorZooKeeper(t *testing.T) {
	t.Parallel()
	newStore(t)
	const allowed = "4lw.commands.whitelist=srvr,conf"
	e := zktest.Ensemble(t, allowed, zktest.TLS, "syncLimit=60" /* 6 s */)
	url := "zk://alice:horse@" + strings.Join(e.Addrs(), ",")
	wantFindings(t, url)
	wantFindings(t, url+"?session-timeout=10s", "unmet syncLimit of "+e.Servers[0].Addr(), "unmet syncLimit of "+e.Servers[1].Addr(), "unmet syncLimit of "+e.Servers[2].Addr())
	var secure []string
	for _, s := range e.Servers {
		addr, _ := s.Secure()
		secure = append(secure, addr)
	}
	wantFindings(t, "zks://alice:horse@"+strings.Join(secure, ",")+"?insecure=on") // each server has its own authority

	one, other := zktest.Single(t), zktest.Single(t, allowed, "minSessionTimeout=100")
	wantFindings(t, "zk://"+one.Addr(), "note settings")
	wantFindings(t, "zk://"+other.Addr(), "unmet minSessionTimeout of "+other.Addr())
	wantFindings(t, "zk://"+one.Addr()+","+other.Addr(), "unmet ensemble", "unmet minSessionTimeout of "+other.Addr())
}

// TestDoctorRedlock examines sound nodes, and nodes that lack something.
func TestDoctorRedlock(t *testing.T) {
	t.Parallel()
	newStore(t)
	url, nodes := startRedlock(t, 3, redistest.Password(password))
	node := func(i int) string { return "node " + nodes[i].Addr() }
	mustSnib(t, "redlock", "init", url)
	wantFindings(t, url)

	nodes[0].Must("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
	replica := redistest.Single(t, redistest.Password(password), "masterauth "+password)
	host, port, _ := strings.Cut(nodes[1].Addr(), ":")
	replica.Must("REPLICAOF", host, port)
	nodes[1].Must("WAIT", 1, 30_000)
	wantFindings(t, url, "unmet "+node(0)+": maxmemory-policy", "unmet "+node(1)+": replicas")

	nodes[0].Must("CONFIG", "SET", "maxmemory-policy", "noeviction")
	replica.Must("REPLICAOF", "NO", "ONE")
	livetest.Await(t, "no replica", func() error {
		if info := fmt.Sprint(nodes[1].Must("INFO", "replication")); !strings.Contains(info, "connected_slaves:0") {
			return errors.New(info)
		}
		return nil
	})
	nodes[2].Must("CONFIG", "SET", "requirepass", "donkey")
	wantFindings(t, url, "note nodes", "note "+node(2))
	if out, _ := snib(t, "doctor", url, "-o", "json"); !strings.Contains(out, "give it the user, password and rights") || strings.Contains(out, "donkey") {
		t.Errorf("of a node with another password: %s", out)
	}
	nodes[2].Kill()
	wantFindings(t, url, "note nodes", "note "+node(2))
	nodes[2].Restart()
	wantFindings(t, url, "note nodes", "note "+node(2))

	twice, fresh := startRedlock(t, 3, redistest.Password(password))
	twice = strings.Replace(twice, fresh[1].Addr(), "localhost:"+fresh[0].Addr()[len("127.0.0.1:"):], 1)
	out, code := snib(t, "doctor", twice)
	if code != 78 || !strings.Contains(out, "are one server, which would have two votes") {
		t.Errorf("with one server under two names: exit code %d: %s", code, out)
	}
}
