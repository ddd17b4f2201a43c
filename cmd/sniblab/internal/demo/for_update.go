package demo

import (
	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
)

// forUpdate is SELECT … FOR UPDATE, whose lock lasts as long as its transaction.
func forUpdate() Demo {
	broken := func(s *Director) {
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
	right := func(s *Director) {
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
	return Demo{
		Name:    "for-update",
		Title:   "FOR UPDATE locks nothing after its transaction",
		Story:   "SELECT … FOR UPDATE locks a row until the transaction ends. Outside BEGIN and COMMIT, that is the end of the statement.",
		Clients: []string{"A", "B", "C"},
		Server:  "postgres",
		Broken:  Variant{Title: "SELECT … FOR UPDATE, each statement on its own", run: broken, want: Damage{Together: 1, Lost: 1}},
		Right:   Variant{Title: "SELECT … FOR UPDATE in the transaction of the work; NOWAIT does not wait", run: right},
		Advice:  "If all that you protect is in one database, lock it in the transaction that changes it, as pglock.Row and mysqllock.Row do: a crash frees it at once, and no lease can end too early.",
		Page:    "docs/from-setnx.md#for-update",
	}
}
