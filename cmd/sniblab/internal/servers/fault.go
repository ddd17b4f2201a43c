package servers

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// A Fault is something that goes wrong with a client of a store, with the network, or with the
// servers.
type Fault struct {
	Name, About string
	Needs       Need
	lasts       lasting
	do          func(s *Set, k Strike) // nil if each Set that can have it does it in its own way
}

// A lasting is for how many TTLs a fault lasts at least, and at most.
type lasting struct{ least, most float64 }

// A Need is what a fault needs of the store or of its clients.
type Need string

// These are what a fault may need.
const (
	Nothing    Need = ""
	OwnProcess Need = "a process for each client"
	AServer    Need = "a server"
	AnOwnWay   Need = "addresses that the lab can stand in for"
	ToForget   Need = "a Redis server alone"
	AReplica   Need = "several servers, one of which leads"
	AMajority  Need = "redlock"
	AClock     Need = "a server that asks libc for the time, and a C compiler"
	ADisk      Need = "a server that writes its files by libc, and a C compiler"

	AClientClock Need = "a program that asks libc for the time, as those in Go don't, and a C compiler"

	// Nemesis is the need of a fault that breaks what locks assume, or that an operator makes.
	Nemesis Need = "the nemesis, whose set-ups say what it excuses"
)

// A Moment is when a fault happens to its victim, which is a client.
type Moment int

// The moments. A victim that has no such moment in time is hit at any.
const (
	Anytime   Moment = iota
	Acquiring        // it is about to ask for the lock
	Waiting          // it waits for the lock, which another client holds
	Holding          // it holds the lock
	Releasing        // it is about to release the lock
)

// A Strike is how a [Director] lets a fault happen to a victim.
type Strike struct {
	Rand *rand.Rand
	For  time.Duration // how long the fault lasts
	TTL  time.Duration // of the lock; the director fills it in
	Step time.Duration // by which a clock is set

	Ways []*livetest.Proxy // from the victim to the servers
	All  []*livetest.Proxy // from all clients to them

	// At calls fail at a moment, and reports whether the victim got the lock. The director adds that
	// the fault is recorded.
	At func(when Moment, fail func()) (granted bool)

	// Proceed lets the victim go on with what it is about to do. Wait does the same, and waits for as
	// long as the fault lasts: if the victim acquires or releases, until that is done.
	Proceed, Wait func()

	StepClock func(time.Duration) // the victim's
	Write     func()              // lets the victim's write arrive now

	stop, resume, restart func() // the victim's process
}

// Hold calls fail while a client holds the lock, if possible, and records the fault.
func (k Strike) Hold(fail func()) { k.At(Holding, fail) }

// The faults that set the clock of a server.
const (
	Forward = "store-forward"
	Back    = "store-back"
)

// Faults is the table of all faults.
func Faults() []Fault {
	aWhile := lasting{0.5, 2}
	return []Fault{
		{"pause", "a holder is stopped (SIGSTOP) for 0.8 to 2.2 TTLs, and then works on", Nothing, lasting{0.8, 2.2}, at(Holding, stop)},
		{"late-write", "a holder is stopped for more than a TTL, just after it has looked at the lock; its write arrives then", Nothing, lasting{1.3, 2.2}, at(Holding, lateWrite)},
		{"kill", "a holder is killed (kill -9), and started again", OwnProcess, aWhile, at(Holding, kill)},
		{"stop-waiter", "a client that waits for the lock is stopped for 0.5 to 2 TTLs", Nothing, aWhile, at(Waiting, stop)},
		{"kill-waiter", "a client that waits for the lock is killed, and started again", OwnProcess, aWhile, at(Waiting, kill)},
		{"clock-forward", "the clock of a holder is set forward by 2 to 4 TTLs", AClientClock, lasting{1.5, 1.5}, at(Holding, stepClock(false))},
		{"clock-back", "the clock of a holder is set back by 2 to 4 TTLs", AClientClock, lasting{1.5, 1.5}, at(Holding, stepClock(true))},

		{"crash", "a client that acquires is killed after the server's answer to one of its requests, the first to the third, was lost", AnOwnWay, aWhile, again(4, crash)},
		{"lost-acquire", "the server's answer to one of the requests of a client that acquires, the first to the third, is lost with its connection", AnOwnWay, aWhile, again(2, lostAcquire)},
		{"lost-renewal", "the answer to the first request of a client that holds the lock is lost with its connection", AnOwnWay, lasting{1.5, 1.5}, at(Holding, whileOn(loseAnswers(1, livetest.ThenClose)))},
		{"lost-release", "the answer to a client that releases is lost with its connection", AnOwnWay, aWhile, at(Releasing, whileOn(loseAnswers(1, livetest.ThenClose)))},
		{"slow-acquire", "the answers of a server, the last one of several, to a client that acquires are late by more than a TTL", AnOwnWay, lasting{1.1, 1.4}, again(3, slowAcquire)},
		{"slow-release", "the requests, or the answers, of a client that releases are late by more than a TTL", AnOwnWay, lasting{1.1, 1.5}, at(Releasing, slowRelease)},
		{"delay", "all requests and answers take 10 to 40 ms longer, for two TTLs", AnOwnWay, lasting{2, 2}, at(Anytime, delay)},
		{"stall", "nothing passes for 100 ms, ten times", AnOwnWay, lasting{0.1, 0.1}, at(Anytime, stall)},
		{"cut", "a holder is cut off from the server, without being told, for 1.2 to 2 TTLs", AnOwnWay, lasting{1.2, 2}, at(Holding, whileOn((*livetest.Proxy).Sever))},
		{"late-cut", "a holder is cut off for 1.2 to 2 TTLs, and then all that was sent meanwhile arrives", AnOwnWay, lasting{1.2, 2}, at(Holding, whileOn((*livetest.Proxy).Stall))},
		{"no-answers", "the requests of a holder arrive, and no answers come back, for 1.2 to 2 TTLs", AnOwnWay, lasting{1.2, 2}, at(Holding, whileOn(loseAnswers(1<<30, livetest.ThenHang)))},
		{"lose-answer", "the answers to two requests are lost with their connections", Nemesis, aWhile, at(Anytime, whileOn(loseAnswers(2, livetest.ThenClose)))},
		{"reset", "all connections are reset", Nemesis, aWhile, at(Anytime, reset)},

		{"store-pause", "the server that leads is stopped (SIGSTOP)", AServer, aWhile, pauseServer},
		{"store-restart", "the server that leads is killed and restarted, with its memory; a node of redlock has none", AServer, aWhile, restart},
		{"store-forget", "the server is killed and restarted, without its memory", ToForget, aWhile, func(s *Set, k Strike) {
			k.Hold(func() { s.forget(s.Nodes[0]) })
		}},
		{"forget-quorum", "one node is down when a holder acquires; it comes back, and another one restarts without its memory", AMajority, aWhile, forgetQuorum},
		{Forward, "the clock of the server, or of one node of redlock, is set forward", AClock, aWhile, func(s *Set, k Strike) {
			k.Hold(func() { s.Shim.StepClock(k.Step) })
		}},
		{Back, "the clock of the server, or of one node of redlock, is set back", AClock, aWhile, func(s *Set, k Strike) {
			k.Hold(func() { s.Shim.StepClock(-k.Step) })
		}},
		{"disk-full", "the disk of the server is full; if that ends the server, it is restarted then", ADisk, aWhile, func(s *Set, k Strike) {
			k.Hold(func() {
				s.Shim.FillDisk(true)
				k.Wait()
				s.Shim.FillDisk(false)
			})
		}},
		{"failover", "the server that leads is killed while a client holds the lock, and another one takes over", AReplica, aWhile, nil},
		{"stop-all", "all servers are stopped (SIGSTOP)", Nemesis, aWhile, stopAll},
		{"fsync", "each fsync on the disk of the first server fails; then it is restarted with a healthy disk", Nemesis, aWhile, fsync},
		{"flush", "FLUSHALL on the server that leads", Nemesis, aWhile, flush},
		{"break", "an operator frees a lock that is held", Nemesis, aWhile, nil},
		{"kill-session", "an operator ends sessions", Nemesis, aWhile, nil},
		{"switch-over", "a replica becomes the master in an orderly way", Nemesis, aWhile, nil},
		{"move-slot", "a slot of the Cluster moves to another master", Nemesis, aWhile, nil},
		{"partition", "one member can't reach the others, but clients can reach it", Nemesis, aWhile, nil},
	}
}

// Duration returns for how long a fault lasts by chance.
func (f Fault) Duration(rng *rand.Rand, ttl time.Duration) time.Duration {
	return time.Duration((f.lasts.least + rng.Float64()*(f.lasts.most-f.lasts.least)) * float64(ttl))
}

// Schedule returns a function that chooses the next fault by chance: each comes once before any
// comes again.
func Schedule(rng *rand.Rand, among []Fault) (next func() Fault) {
	var order []int
	return func() Fault {
		if len(order) == 0 {
			order = rng.Perm(len(among))
		}
		f := among[order[0]]
		order = order[1:]
		return f
	}
}

// isOfClient reports whether a fault happens to a client alone. Others disturb all clients.
func (f Fault) isOfClient() bool {
	return f.Needs == Nothing || f.Needs == OwnProcess || f.Needs == AClientClock
}

// strike does the fault to a store and a victim. s is nil if the store has no servers.
func (f Fault) strike(s *Set, k Strike) {
	if s != nil && s.Own[f.Name] != nil {
		s.Own[f.Name](k)
		return
	}
	if f.do == nil {
		s.T.Fatalf("the servers can't have the fault %q", f.Name)
	}
	f.do(s, k)
}

// at returns the fault that happens to a victim at a moment.
func at(when Moment, fail func(Strike)) func(*Set, Strike) {
	return func(_ *Set, k Strike) { k.At(when, func() { fail(k) }) }
}

// again returns the fault of a victim that acquires, which is tried several times until the lock
// is free then.
func again(tries int, fail func(Strike)) func(*Set, Strike) {
	return func(_ *Set, k Strike) {
		for range tries {
			if k.At(Acquiring, func() { fail(k) }) {
				return
			}
		}
	}
}

func stop(k Strike) {
	k.stop()
	k.Wait()
	k.resume()
}

func lateWrite(k Strike) {
	k.stop()
	k.Wait()
	k.Write()
	k.resume()
}

func kill(k Strike) {
	k.Proceed()
	time.Sleep(time.Duration(k.Rand.IntN(20)) * time.Millisecond) // the holder is somewhere in its work
	k.restart()
}

// stepClock returns the fault that sets the clock of a client, forward or back.
func stepClock(back bool) func(Strike) {
	return func(k Strike) {
		if back {
			k.Step = -k.Step
		}
		k.StepClock(k.Step)
		k.Wait()
	}
}

// acquirePlaces is how many requests of an acquisition can lose their answers.
const acquirePlaces = 3

// loseAnswer loses the answer to one of the requests of a victim that acquires, and waits for that.
func (k Strike) loseAnswer(then livetest.Ending) {
	soon := func(ch <-chan struct{}) {
		k.Proceed()
		select {
		case <-ch:
		case <-time.After(k.TTL / 4):
		}
	}
	for range k.Rand.IntN(acquirePlaces) {
		soon(k.Ways[0].Sent(""))
	}
	var lost <-chan struct{}
	for _, way := range k.Ways {
		lost = way.LoseAnswers(1, then)
	}
	soon(lost)
}

func crash(k Strike) {
	k.loseAnswer(livetest.ThenHang)
	k.restart()
}

func lostAcquire(k Strike) {
	k.loseAnswer(livetest.ThenClose)
	k.Wait()
	for _, way := range k.Ways { // there may have been no such request
		way.Heal()
	}
}

func slowAcquire(k Strike) {
	way := k.Ways[len(k.Ways)-1]
	way.Delay(0, k.For)
	k.Wait()
	way.Delay(0, 0)
}

func slowRelease(k Strike) {
	toServer, toClient := k.For, time.Duration(0)
	if k.Rand.IntN(2) == 0 {
		toServer, toClient = toClient, toServer
	}
	whileOn(delayBy(toServer, toClient))(k)
}

// whileOn returns the fault that something is done to all ways of a victim.
func whileOn(begin func(*livetest.Proxy) (heal func())) func(Strike) {
	return func(k Strike) {
		heal := livetest.All(k.Ways, begin)
		k.Wait()
		heal()
	}
}

func loseAnswers(n int, then livetest.Ending) func(*livetest.Proxy) func() {
	return func(p *livetest.Proxy) func() {
		p.LoseAnswers(n, then)
		return p.Heal
	}
}

func delayBy(toServer, toClient time.Duration) func(*livetest.Proxy) func() {
	return func(p *livetest.Proxy) func() {
		p.Delay(toServer, toClient)
		return func() { p.Delay(0, 0) }
	}
}

func delay(k Strike) {
	millis := func() time.Duration { return time.Duration(10+k.Rand.IntN(30)) * time.Millisecond }
	heal := livetest.All(k.All, func(p *livetest.Proxy) func() { return delayBy(millis(), millis())(p) })
	k.Wait()
	heal()
}

func stall(k Strike) {
	for range 10 {
		heal := livetest.All(k.All, (*livetest.Proxy).Stall)
		k.Wait()
		heal()
		k.Wait()
	}
}

func reset(k Strike) {
	for _, way := range k.All {
		way.Cut()
	}
}

func pauseServer(s *Set, k Strike) { pause(k, s.Hit(k.Rand)) }

func stopAll(s *Set, k Strike) { pause(k, s.All...) }

func pause(k Strike, stopped ...Server) {
	k.Hold(func() {
		for _, server := range stopped {
			server.Hang()
		}
		k.Wait()
		for _, server := range stopped {
			server.Resume()
		}
	})
}

// restart restarts servers at once, before most clients have noticed, or after a while.
func restart(s *Set, k Strike) {
	dead := []Server{s.Hit(k.Rand)}
	if s.Minority > 1 {
		dead = nil
		for _, i := range k.Rand.Perm(len(s.All))[:1+k.Rand.IntN(s.Minority)] {
			dead = append(dead, s.All[i])
		}
	}
	later := k.Rand.IntN(2) == 0
	k.Hold(func() {
		for _, server := range dead {
			server.Kill()
		}
		if later {
			k.Wait()
		}
		for _, server := range dead {
			server.Restart()
		}
	})
}

// fsync lets a server end, as it has to when its disk fails.
func fsync(s *Set, k Strike) {
	server := s.All[0]
	k.Hold(func() {
		server.MayEnd()
		s.Shim.FailFsync(true)
		k.Wait()
		s.Shim.FailFsync(false)
		server.Kill() // if it still runs
		server.Restart()
	})
}

func flush(s *Set, k Strike) {
	k.Hold(func() {
		// A master refuses writes while it knows of no replica.
		livetest.Await(s.T, "FLUSHALL", func() error { _, err := s.Hit(k.Rand).(*redistest.Node).Do("FLUSHALL"); return err })
	})
}

func forgetQuorum(s *Set, k Strike) {
	n := len(s.Nodes)
	down := k.Rand.IntN(n)
	s.Nodes[down].Kill()
	k.Hold(func() {
		s.Nodes[down].Restart()
		s.forget(s.Nodes[(down+1)%n])
	})
}

// forget restarts a Redis server without its memory.
func (s *Set) forget(n *redistest.Node) {
	n.Kill()
	livetest.Must(s.T, os.RemoveAll(filepath.Join(n.Dir(), "appendonlydir")), "remove the data of the server")
	for _, file := range []string{"appendonly.aof", "dump.rdb"} { // before Redis 7 the first is one file
		_ = os.Remove(filepath.Join(n.Dir(), file))
	}
	n.Restart()
}
