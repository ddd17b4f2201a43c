package demo

import (
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
)

// getDel is a DEL that removes somebody else's lock although the client has looked before.
func getDel() Demo {
	return Demo{
		Name:    "get-del",
		Title:   "the lock changes hands between GET and DEL",
		Story:   "Before it frees the lock, A looks whether it is still its own. It is, but A is slow, and its TTL ends between the look and the DEL.",
		Clients: []string{"A", "B", "C"},
		Broken:  Variant{Title: "GET, compare, DEL", run: runDel(pattern.GetDel, "DEL"), want: Damage{Together: 1, Lost: 1}},
		Right:   Variant{Title: "a script compares and deletes at once", run: runDel(pattern.SetNX, "EVAL")},
		Advice:  "Compare and delete in one script (EVAL): no other command runs between its two steps. That is what snib does.",
		Page:    "docs/from-setnx.md#get-del",
	}
}

// runDel returns a variant in which A releases its lock too late, when B has it already, and C
// waits. A is delayed before the command that frees the lock.
func runDel(p pattern.Name, command string) func(*Director) {
	const (
		short = 2 * time.Second // A's TTL, which must end
		long  = time.Minute     // that of B and C, which must not
	)
	return func(s *Director) {
		r := s.Redis()
		a, b, c := r.Client("A", p, short), r.Client("B", p, long), r.Client("C", p, long)
		a.Acquire()
		a.Work()
		if a.Release(Before(command)) {
			panic(failure{ErrTooBusy}) // the TTL was over before the first command
		}
		r.AwaitExpiry()
		b.Acquire()
		b.Work(Before("SET"))
		a.GoOn()
		together := c.Acquire()
		if together {
			c.Work()
		}
		b.GoOn()
		b.Release()
		if !together {
			c.Finish()
			c.Work()
		}
		c.Release()
	}
}

// delAnothers is a DEL that removes somebody else's lock.
func delAnothers() Demo {
	return Demo{
		Name:    "del-anothers",
		Title:   "A deletes the lock of B, and C gets in",
		Story:   "A is slow before it frees its lock. The TTL ends meanwhile, and B gets the lock. Then A goes on.",
		Clients: []string{"A", "B", "C"},
		Broken:  Variant{Title: "DEL frees the lock", run: runDel(pattern.Del, "DEL"), want: Damage{Together: 1, Lost: 1}},
		Right:   Variant{Title: "a script deletes the key only if it is still A's", run: runDel(pattern.SetNX, "EVAL")},
		Advice:  "Put a value of your own into the lock, and delete the key by a script that compares it, as snib does.",
		Page:    "docs/from-setnx.md#del-anothers",
	}
}
