package scene

import (
	"github.com/sniblock/snib/lab/pattern"
)

// forUpdate is SELECT … FOR UPDATE, whose lock lasts as long as its transaction.
func forUpdate() Scene {
	broken := func(s *Stage) {
		db := s.Postgres()
		a, b := db.Client("A", pattern.Autocommit, 0), db.Client("B", pattern.Autocommit, 0)
		a.Acquire()
		a.Work(Before("UPDATE"))
		b.Acquire()
		b.Work()
		b.Release()
		a.GoOn()
		a.Release()
	}
	right := func(s *Stage) {
		db := s.Postgres()
		a, b, c := db.Client("A", pattern.ForUpdate, 0), db.Client("B", pattern.ForUpdate, 0), db.Client("C", pattern.ForUpdate, 0)
		a.Acquire()
		a.Work(Before("UPDATE"))
		b.Acquire()
		c.Try()
		a.GoOn()
		a.Release()
		b.Finish()
		b.Work(Before("UPDATE"))
		b.Kill()
		c.Acquire()
		c.Finish()
		c.Work()
		c.Release()
	}
	return Scene{
		Name:    "for-update",
		Title:   "FOR UPDATE locks nothing after its transaction",
		Story:   "SELECT … FOR UPDATE locks a row until the transaction ends. Outside BEGIN and COMMIT, that is the end of the statement.",
		Clients: []string{"A", "B", "C"},
		Server:  "postgres",
		Broken:  Act{Title: "SELECT … FOR UPDATE, each statement on its own", play: broken, want: Damage{Together: 1, Lost: 1}},
		Right:   Act{Title: "SELECT … FOR UPDATE in the transaction of the work; NOWAIT does not wait", play: right},
		Advice:  "If all that you protect is in one database, lock it in the transaction that changes it, as pglock.Row and mysqllock.Row do: a crash frees it at once, and no lease can end too early.",
		Page:    "docs/from-setnx.md#for-update",
	}
}
