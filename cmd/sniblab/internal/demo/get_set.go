package demo

import (
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
)

// getSet is the race between GET and SET.
func getSet() Demo {
	const ttl = time.Minute // no lease ends in this demo
	run := func(p pattern.Name) func(*Director) {
		return func(s *Director) {
			r := s.Redis()
			a, b := r.Client("A", p, ttl), r.Client("B", p, ttl)
			a.Acquire(Before("SET"))
			b.Acquire()
			b.Work(Before("SET"))
			a.GoOn()
			together := a.Holds() // later, it may hold the lock because B has released it
			if together {
				a.Work()
			}
			b.GoOn()
			b.Release()
			if !together {
				a.Finish()
				a.Work()
			}
			a.Release()
		}
	}
	return Demo{
		Name:    "get-set",
		Title:   "two clients look, and both take the lock",
		Story:   "GET shows that the lock is free, and SET takes it. Between the two commands of A, B gets in.",
		Clients: []string{"A", "B"},
		Broken:  Variant{Title: "GET, then SET", run: run(pattern.GetSet), want: Damage{Together: 1, Lost: 1}},
		Right:   Variant{Title: "SET … NX: the server looks and takes at once", run: run(pattern.SetNX)},
		Advice:  "Let the server decide in one command who gets the lock, by SET with NX, as snib does.",
		Page:    "docs/from-setnx.md#get-set",
	}
}
