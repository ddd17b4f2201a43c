package trial

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// versions tell the name and version of the server at an address, such as "Redis 8.6.2", by the
// server's name in storeType.needs.
var versions = map[string]func(addr string) (string, error){
	"redis": redisVersion, "postgres": postgresVersion, "mysql": mysqlVersion, "etcd": etcdVersion,
	"zookeeper": zooKeeperVersion,
}

// askTimeout is how long a server has for its answer.
const askTimeout = 5 * time.Second

// version returns the name and version of the servers, or "" if there are none. They all have the
// same one.
func (s *store) version() (string, error) {
	if s.Set == nil {
		return "", nil
	}
	return versions[s.about.needs[0]](s.Addrs[0])
}

func redisVersion(addr string) (string, error) {
	answer, err := redistest.Do(addr, "INFO", "server")
	if strings.Contains(fmt.Sprint(answer), "\nvalkey_version:") { // it also has the version of Redis that it is like
		return find("Valkey", `\nvalkey_version:(\S+)`, answer, err)
	}
	return find("Redis", `\nredis_version:(\S+)`, answer, err)
}

func postgresVersion(addr string) (text string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, pgtest.URL(addr)+"&default_query_exec_mode=simple_protocol") // which passes PgBouncer
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx) //nolint:errcheck // it has answered
	err = conn.QueryRow(ctx, "SHOW server_version").Scan(&text)
	return find("PostgreSQL", `^(\S+)`, text, err)
}

func mysqlVersion(addr string) (string, error) {
	c, err := mysql.ParseDSN(mysqltest.DSN(addr, "timeout="+askTimeout.String(), "readTimeout="+askTimeout.String()))
	if err != nil {
		return "", err
	}
	c.Logger = &mysql.NopLogger{} // it would log that the server does not answer
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return "", err
	}
	db := sql.OpenDB(connector)
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

// get returns what an HTTP server answers.
func get(addr, path string) (string, error) {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + addr + path)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return string(text), err
}
