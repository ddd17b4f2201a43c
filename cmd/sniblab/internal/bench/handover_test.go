//go:build unix

package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// A job is the work of one of the processes that take turns.
type job struct {
	Store, Library string
	Addrs          []string
	Name           string
	Own            string // another name, which only this process locks
	Holds          int
	File           string // for the result
}

// A result is what a process did. Its times are those of the host, which all its processes share.
type result struct {
	CPU   time.Duration
	Holds []held
}

// held is the time of a hold: from the return of Acquire to the call of Release.
type held struct{ Got, Left int64 }

// holdTime is long enough for the other process to wait again.
const holdTime = time.Millisecond

// handOvers has two processes contend for one name and hold it for a millisecond each time, b.N
// times in all. A gap is the time in which the lock is idle, when it passes to the other process;
// how often it does is that library's choice.
func handOvers(b *testing.B, s *store, library string) {
	dir, name := b.TempDir(), fmt.Sprint("bench/hand-over/", time.Now().UnixNano())
	var children []*livetest.Child
	var jobs []job
	for i := range 2 {
		j := job{Store: s.name, Library: library, Addrs: s.addrs, Name: name, Own: fmt.Sprint(name, "/", i), Holds: (b.N + 1 - i) / 2}
		j.File = filepath.Join(dir, fmt.Sprint(i))
		jobs, children = append(jobs, j), append(children, livetest.StartChild(b, j))
	}
	expect := func(word string) {
		for _, c := range children {
			c.Expect(word)
		}
	}
	expect("ready")
	s.measure(b, func() {
		for _, c := range children {
			c.End() // its waiting
		}
		expect("done")
	})
	client, gaps := results(b, jobs)
	perOp(b, float64(client), clientCPU)
	perOp(b, float64(len(gaps)), "crossed/op")
	if len(gaps) > 0 {
		b.ReportMetric(float64(gaps[len(gaps)/2]), "p50-gap-ns")
	}
}

// results returns the processor time of all processes, and the gaps, the shortest first.
func results(b *testing.B, jobs []job) (client time.Duration, gaps []int64) {
	type link struct {
		held
		process int
	}
	var links []link
	for i, j := range jobs {
		var r result
		text, err := os.ReadFile(j.File)
		if err := errors.Join(err, json.Unmarshal(text, &r)); err != nil {
			b.Fatalf("result of process %d: %v", i, err)
		}
		client += r.CPU
		for _, h := range r.Holds {
			links = append(links, link{h, i})
		}
	}
	slices.SortFunc(links, func(a, b link) int { return cmp.Compare(a.Got, b.Got) })
	for i := 1; i < len(links); i++ {
		if from, to := links[i-1], links[i]; from.process != to.process {
			gaps = append(gaps, to.Got-from.Left)
		}
	}
	slices.Sort(gaps)
	return client, gaps
}

// takeTurns is the job of a process of handOvers, which begins when begin is done.
func takeTurns(j job, begin context.Context) error {
	libraries := allLibraries()[j.Store]
	i := slices.IndexFunc(libraries, func(l library) bool { return l.name == j.Library })
	c, err := libraries[i].open(j.Addrs)
	if err != nil {
		return err
	}
	defer c.close()
	caller := c.take(1)[0]
	if err := cycle(caller, j.Own); err != nil {
		return err
	}
	livetest.Say("ready")
	<-begin.Done()
	r, before := result{Holds: make([]held, j.Holds)}, cpuTime()
	for n := range r.Holds {
		if err := acquire(caller, j.Name); err != nil {
			return err
		}
		got := time.Now()
		time.Sleep(holdTime)
		r.Holds[n] = held{got.UnixNano(), time.Now().UnixNano()}
		if err := caller.release(); err != nil {
			return err
		}
	}
	r.CPU = cpuTime() - before
	text, err := json.Marshal(r)
	err = errors.Join(err, os.WriteFile(j.File, text, 0o600))
	livetest.Say("done")
	return err
}
