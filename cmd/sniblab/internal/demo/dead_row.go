package demo

import (
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
)

// deadRow is a row that is the lock, and stays when its owner dies.
func deadRow() Demo {
	const ttl = 2 * time.Second
	run := func(p pattern.Name, wait ...Option) func(*Director) {
		return func(s *Director) {
			db := s.Postgres()
			a, b := db.Client("A", p, ttl), db.Client("B", p, ttl)
			a.Acquire()
			a.Work(Before("UPDATE"))
			a.Kill()
			if !b.Acquire(wait...) && !b.Finish() {
				s.Say(s.demo.Server, "A is dead, and its row stays")
				s.count(&s.damage.Blocked)
				return
			}
			b.Work()
			b.Release()
		}
	}
	return Demo{
		Name:    "dead-row",
		Title:   "a row that is the lock outlives its owner",
		Story:   "A table has a unique name. INSERT takes the lock, and DELETE frees it. A is killed in its work.",
		Clients: []string{"A", "B"},
		Server:  "postgres",
		Broken:  Variant{Title: "INSERT takes the lock, DELETE frees it", run: run(pattern.InsertRow, GiveUpAfter(2*ttl)), want: Damage{Blocked: 1}},
		Right:   Variant{Title: "snib: the row has a lease, by the server's clock", run: run(pattern.SnibInTable)},
		Advice:  "Put an end into the row, by the clock of the database, and renew it while you work, as snib does.",
		Page:    "docs/from-setnx.md#dead-row",
	}
}
