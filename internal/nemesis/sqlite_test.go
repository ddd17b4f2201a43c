//go:build linux

package nemesis

import "path/filepath"

func startSQLite(w *world) {
	w.direct = Store{Kind: "sqlite", Addrs: []string{filepath.Join(w.dir, "locks.db")}}
	w.Store = w.direct
	w.Mixed, w.Abandon = true, true
	w.workerFaults()
}
