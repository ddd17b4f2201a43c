//go:build linux

package nemesis

import (
	"path/filepath"
	"time"

	"github.com/sniblock/snib/internal/livetest/redistest"
)

// A setup is a store as it is run, with what it promises under each fault.
type setup struct {
	name   string
	start  func(*world) // starts servers, sets the world's stores, and adds faults
	rows   []row
	settle time.Duration // beyond TTL + 5 s, what its page allows until all goes on after the heal
}

// setups are all of them, in the order of tables.
var setups = []setup{
	{name: "sqlite", start: startSQLite, rows: sqliteRows},
	{name: "redis", start: startRedis(), rows: redisRows},
	{name: "redis-aof", start: startRedis("appendonly yes", "appendfsync always"), rows: redisRows},
}

func startSQLite(w *world) {
	w.direct = Store{Kind: "sqlite", Addrs: []string{filepath.Join(w.dir, "locks.db")}}
	w.Store = w.direct
	w.Mixed, w.Abandon = true, true
	w.workerFaults()
}

func startRedis(conf ...string) func(*world) {
	return func(w *world) {
		node := redistest.Single(w.t, conf...)
		w.direct = Store{Kind: "redis", Addrs: []string{node.Addr()}}
		w.Store = Store{Kind: "redis", Addrs: w.proxy(node.Addr())}
		w.Mixed, w.Abandon = true, true
		w.workerFaults()
		w.serverFaults(node)
		w.add("flush", func(time.Duration) {
			w.during("flush", "", func() { node.Must("FLUSHALL") })
		})
	}
}
