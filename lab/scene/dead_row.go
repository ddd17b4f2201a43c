package scene

import (
	"time"

	"github.com/sniblock/snib/lab/pattern"
)

// deadRow is a row that is the lock, and stays when its owner dies.
func deadRow() Scene {
	const ttl = 2 * time.Second
	play := func(p pattern.Name, wait ...Option) func(*Stage) {
		return func(s *Stage) {
			db := s.Postgres()
			a, b := db.Client("A", p, ttl), db.Client("B", p, ttl)
			a.Acquire()
			a.Work(Before("UPDATE"))
			a.Kill()
			if !b.Acquire(wait...) && !b.Finish() {
				s.Say(s.scene.Server, "A is dead, and its row stays")
				s.block()
				return
			}
			b.Work()
			b.Release()
		}
	}
	return Scene{
		Name:    "dead-row",
		Title:   "a row that is the lock outlives its owner",
		Story:   "A table has a unique name. INSERT takes the lock, and DELETE frees it. A is killed in its work.",
		Clients: []string{"A", "B"},
		Server:  "postgres",
		Broken:  Act{Title: "INSERT takes the lock, DELETE frees it", play: play(pattern.InsertRow, GiveUpAfter(2*ttl)), want: Damage{Blocked: 1}},
		Right:   Act{Title: "snib: the row has a lease, by the server's clock", play: play(pattern.SnibInTable)},
		Advice:  "Put an end into the row, by the clock of the database, and renew it while you work, as snib does.",
		Page:    "docs/from-setnx.md#dead-row",
	}
}
