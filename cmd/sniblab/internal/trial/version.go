package trial

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// versions tell the name and version of the server at an address, such as "Redis 8.6.2", by the
// server's name in storeType.needs.
var versions = map[string]func(addr string) (string, error){
	"redis": redisVersion, "postgres": postgresVersion, "mysql": mysqlVersion, "etcd": etcdVersion,
	"zookeeper": zooKeeperVersion,
}

// version returns the name and version of the servers, or "" if there are none. They all have the
// same one.
func (s *store) version(t testing.TB) string {
	if s.servers == nil {
		return ""
	}
	text, err := versions[s.about.needs[0]](s.addrs[0])
	if err != nil {
		t.Fatalf("ask the server for its version: %v", err)
	}
	return text
}

func redisVersion(addr string) (string, error) {
	answer, err := redistest.Do(addr, "INFO", "server")
	if strings.Contains(fmt.Sprint(answer), "\nvalkey_version:") { // it also has the version of Redis that it is like
		return find("Valkey", `\nvalkey_version:(\S+)`, answer, err)
	}
	return find("Redis", `\nredis_version:(\S+)`, answer, err)
}

func postgresVersion(addr string) (text string, err error) {
	err = askPostgres(addr, "SHOW server_version", &text)
	return find("PostgreSQL", `^(\S+)`, text, err)
}

func mysqlVersion(addr string) (string, error) {
	db, err := openMySQL(mysqltest.DSN(addr, "timeout="+countTimeout.String(), "readTimeout="+countTimeout.String()))
	if err != nil {
		return "", err
	}
	defer db.Close() //nolint:errcheck // it has answered
	var text string
	err = db.QueryRow("SELECT version()").Scan(&text)
	name := "MySQL"
	if strings.Contains(text, "MariaDB") {
		name = "MariaDB"
	}
	return find(name, `^([0-9.]+)`, text, err)
}

func etcdVersion(addr string) (string, error) {
	text, err := get(addr, "/version")
	return find("etcd", `"etcdserver":"([^"]+)"`, text, err)
}

func zooKeeperVersion(addr string) (string, error) {
	text, err := zktest.Stat(addr)
	return find("ZooKeeper", `^Zookeeper version: ([0-9.]+)`, text, err)
}

// find returns a name and the version that a server's answer has.
func find(name, pattern string, answer any, err error) (string, error) {
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(pattern).FindStringSubmatch(fmt.Sprint(answer))
	if found == nil {
		return "", fmt.Errorf("%s answers without a version: %q", name, answer)
	}
	return name + " " + found[1], nil
}
