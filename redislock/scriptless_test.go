package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/drivertest"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// scriptlessUser is a line of configuration: the user may run all commands but scripts.
const scriptlessUser = "user scriptless on >" + password + " ~* &* +@all -@scripting"

// scriptless returns how that user reaches a server.
func scriptless(addr string) rueidis.ClientOption {
	o := at(addr)
	o.Username, o.Password = "scriptless", password
	return o
}

// bothWays starts a server, and returns a driver without scripts and one with them.
func bothWays(t *testing.T) (node *redistest.Node, without, with *redislock.Driver) {
	t.Helper()
	node = used(t, redistest.Single(t, redistest.Password(password), scriptlessUser))
	return node, open(t, scriptless(node.Addr())), open(t, at(node.Addr()))
}

// TestConformanceScriptless runs the suite as a user who may run no scripts.
func TestConformanceScriptless(t *testing.T) {
	node := used(t, redistest.Single(t, redistest.Password(password), scriptlessUser))
	h := detoured(scriptless(node.Addr()), node.Addr())
	h.Kill = harness(scriptless(node.Addr())).Kill
	h.Restart = func(t *testing.T) {
		node.Kill()
		node.Restart()
		used(t, node)
	}
	drivertest.Run(t, h)
}

// TestScriptlessMixed has processes with and without scripts that contend for the same locks.
func TestScriptlessMixed(t *testing.T) {
	t.Parallel()
	node, without, with := bothWays(t)
	drivers := []*redislock.Driver{without, with, open(t, scriptless(node.Addr())), open(t, at(node.Addr()))}
	jobtest.Contend(t, drivers, 40, floor)
	nothingLeft(t, node)
}

// TestScriptlessQueue has processes with and without scripts in one queue: they are served in the
// order of their arrival, by messages, and later processes do not overtake them.
func TestScriptlessQueue(t *testing.T) {
	t.Parallel()
	node, without, with := bothWays(t)
	slack := livetest.Slack(t)
	for i := range 4 {
		pair := [2]*redislock.Driver{without, with}
		if i%2 == 1 {
			pair = [2]*redislock.Driver{with, without}
		}
		name := fmt.Sprint("queue ", i)
		holder := take(t, pair[0], uniqueRequest(name, "holder"))
		var waiting []<-chan result
		for n := range 4 {
			waiting = append(waiting, wait(t, pair[(n+1)%2], uniqueRequest(name, fmt.Sprint("waiter ", n)), n+1))
		}
		last := holder
		for n, w := range waiting {
			free(t, last)
			for _, d := range pair {
				refused(t, d, uniqueRequest(name, "hurried"), "while others wait")
			}
			l, took := granted(t, w, enough, fmt.Sprint("waiter ", n))
			if took > soonEnough+slack() {
				t.Errorf("waiter %d was granted the lock after %v, and not by a message", n, took)
			}
			if token(l) <= token(last) {
				t.Errorf("token %d after %d", token(l), token(last))
			}
			last = l
		}
		free(t, last)
	}
	nothingLeft(t, node)
}

// TestScriptlessServesOthers has a process without scripts release locks for which others wait that
// request what needs scripts: they get it at once, and a long lease is recorded as such.
func TestScriptlessServesOthers(t *testing.T) {
	t.Parallel()
	node, without, with := bothWays(t)
	slack := livetest.Slack(t)
	for _, mode := range modes[:2] { // a semaphore is of another kind
		holder := take(t, without, uniqueRequest(mode.name, "holder"))
		waiting := wait(t, with, mode.as(request(mode.name, "waiter", time.Minute)), 1)
		free(t, holder)
		l, took := granted(t, waiting, enough, mode.name)
		if took > soonEnough+slack() {
			t.Errorf("%s: granted %v after the release", mode.name, took)
		}
		if n := node.Must("ZCARD", "snib.g"); n != int64(1) {
			t.Errorf("%s: %v long leases are recorded, want 1", mode.name, n)
		}
		free(t, l)
	}
}

// TestScriptlessRestart restarts a server without its memory. Nothing is granted before the leases
// that it has forgotten are over, and then the tokens go on.
func TestScriptlessRestart(t *testing.T) {
	t.Parallel()
	node, d, _ := bothWays(t)
	first := take(t, d, request("job", "first", floor))
	node.Kill()
	node.Restart()
	withheld(t, d, request("job", "second", floor), "after a restart without memory")
	second, _ := granted(t, begin(t, d, request("job", "second", floor)), enough, "second")
	if left := valid(first, floor); left > 0 {
		t.Errorf("granted while the first hold is valid for another %v", left)
	}
	if token(second) <= token(first) {
		t.Errorf("token %d after %d", token(second), token(first))
	}
	node.Must("HSET", "snib.m", "r", "another server") // as after a failover
	withheld(t, d, request("other", "third", floor), "after a failover")
	if err := d.Admin().Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	third := take(t, d, request("other", "third", floor))
	if token(third) <= token(second) {
		t.Errorf("token %d after %d", token(third), token(second))
	}
}

// TestScriptlessTokens gives a server a count of tokens that lacks the last ones, as a replica has
// it that is promoted. A process with scripts, or an operator, has seen to the grace period.
func TestScriptlessTokens(t *testing.T) {
	t.Parallel()
	node, d, with := bothWays(t)
	for name, loss := range map[string]func(lagging uint64){
		"Deleted": func(uint64) { node.Must("HDEL", "snib.m", "t") },
		"Flushed": func(uint64) { node.Must("FLUSHALL"); used(t, node) },
		"Lagging": func(lagging uint64) {
			node.Must("HSET", "snib.m", "t", fmt.Sprint(lagging), "c", fmt.Sprint(time.Now().UnixMicro()-floor.Microseconds()-1000), "x", "0")
		},
		"Forgotten": func(lagging uint64) {
			node.Must("HSET", "snib.m", "t", fmt.Sprint(lagging), "r", "another server")
			if err := with.Admin().Forget(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		before := take(t, d, uniqueRequest(name, "first"))
		free(t, before)
		loss(token(before) - uint64((10 * time.Second).Microseconds()))
		after := take(t, d, uniqueRequest(name, "second"))
		if token(after) <= token(before) {
			t.Errorf("%s: token %d after %d", name, token(after), token(before))
		}
	}
}

// A refusingConn leads to a server that refuses scripts.
type refusingConn struct{ redislock.Conn }

func (c refusingConn) Masters(ctx context.Context) ([]redislock.Node, error) {
	masters, err := c.Conn.Masters(ctx)
	for i := range masters {
		masters[i] = refusingNode{masters[i]}
	}
	return masters, err
}

type refusingNode struct{ redislock.Node }

func (n refusingNode) Do(ctx context.Context, command ...string) (any, error) {
	if command[0] == "EVAL" {
		return nil, &redislock.ReplyError{Text: "ERR unknown command 'EVAL'"}
	}
	return n.Node.Do(ctx, command...)
}

// A lossyTransactions loses pipelines of transactions, and their answers, and executes some of them
// later than their withdrawal.
type lossyTransactions struct{ *lossyConn }

func (c lossyTransactions) Dedicate(ctx context.Context, use func(redislock.Pipeline) error) error {
	return c.Conn.Dedicate(ctx, func(send redislock.Pipeline) error {
		lost := false
		return use(func(calls ...redislock.Call) []redislock.Reply {
			c.mu.Lock()
			fate, pause := c.rng.IntN(100), time.Duration(c.rng.IntN(8))*time.Millisecond
			c.mu.Unlock()
			if fate < 10 {
				time.Sleep(pause) // others are executed before
			}
			var replies []redislock.Reply
			if lost = lost || fate < 2; !lost {
				replies = send(calls...)
			}
			if lost = lost || fate >= 97; lost {
				replies = make([]redislock.Reply, len(calls))
				for i := range replies {
					replies[i].Err = errLost
				}
			}
			return replies
		})
	})
}

// TestScriptlessUnderLoss is TestPathsUnderLoss for two processes without scripts, and one with
// them.
func TestScriptlessUnderLoss(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	drivers := []*redislock.Driver{open(t, at(node.Addr()))}
	for seed := range uint64(2) {
		drivers = append(drivers, openOn(t, node, func(c redislock.Conn) redislock.Conn {
			lossy := &lossyConn{Conn: c, rng: rand.New(rand.NewPCG(1, seed))} //nolint:gosec // it is repeatable
			return refusingConn{lossyTransactions{lossy}}
		}))
	}
	const ttl = 300 * time.Millisecond // that of a hold whose release is lost
	jobtest.Contend(t, drivers, 40, ttl)
	for _, name := range []string{"one", "two"} {
		free(t, take(t, drivers[0], uniqueRequest(name, "last "+name)))
	}
}

// TestScriptlessPromises checks what the driver promises without scripts, and that it refuses the
// rest, with the reason.
func TestScriptlessPromises(t *testing.T) {
	t.Parallel()
	node, d, with := bothWays(t)
	info := d.Info()
	if info.Shared || info.Slots || info.MaxTTL != floor || !strings.Contains(strings.Join(info.Assumptions, "\n"), "refuses scripts") {
		t.Errorf("Info = %+v", info)
	}
	if !with.Info().Shared {
		t.Errorf("with scripts, Info = %+v", with.Info())
	}
	for name, opt := range map[string]snib.Option{"Shared": snib.Shared(), "Slots": snib.Slots(2), "TTL": snib.TTL(floor + time.Second)} {
		if _, err := snib.New(d, opt); !errors.Is(err, snib.ErrInvalid) {
			t.Errorf("New with %s = %v, want ErrInvalid", name, err)
		}
	}
	for _, mode := range modes[1:] {
		if _, err := d.Acquire(t.Context(), mode.as(request("job", "owner", floor))); err == nil || !strings.Contains(err.Error(), "refuses scripts") {
			t.Errorf("%s: Acquire = %v", mode.name, err)
		}
	}
	if _, err := d.Acquire(t.Context(), request("job", "owner", floor+time.Second)); err == nil || !strings.Contains(err.Error(), "refuses scripts") {
		t.Errorf("Acquire with a TTL longer than GraceFloor = %v", err)
	}
	for name, opt := range map[string]redislock.Option{
		"DurableAOF": redislock.DurableAOF(), "FailoverGrace": redislock.FailoverGrace(false), "GraceFloor": redislock.GraceFloor(0),
		"YieldToForeign": redislock.YieldToForeign(time.Minute),
	} {
		if name == "DurableAOF" && !redistest.AtLeast(t, 7, 2) {
			continue // the server is refused for its version
		}
		d, err := redislock.Open(t.Context(), scriptless(node.Addr()), opt)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(fmt.Sprint(err), name) || !strings.Contains(fmt.Sprint(err), "refuses scripts") {
			t.Errorf("Open with %s = %v, %v", name, d, err)
		}
	}
}

// TestScriptlessBeside has locks of other kinds in the same store: of processes with scripts, and
// of foreign clients.
func TestScriptlessBeside(t *testing.T) {
	t.Parallel()
	node, d, with := bothWays(t)
	for _, mode := range modes {
		l := take(t, with, mode.as(request(mode.name, "holder", floor)))
		req := request(mode.name, "other", floor)
		req.NoWait = true
		if _, err := d.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) && !errors.Is(err, driver.ErrKind) {
			t.Errorf("%s: Acquire of a held lock = %v", mode.name, err)
		}
		got, want := status(t, d, mode.name), status(t, with, mode.name)
		if len(got.Holders) != 1 || got.Holders[0].Token != want.Holders[0].Token || got.Shared != want.Shared || got.Slots != want.Slots {
			t.Errorf("%s: Status = %+v, want %+v", mode.name, got, want)
		}
		if err := d.Break(t.Context(), mode.name, "holder", token(l)); (err == nil) != (mode.name == "Exclusive") {
			t.Errorf("%s: Break = %v", mode.name, err)
		}
		_ = l.Release(t.Context())
	}
	value := "not UTF-8: \xff\"\\\n"
	node.Must("SET", "foreign", value, "PX", 60_000)
	if st := status(t, d, "foreign"); len(st.Holders) != 1 || st.Holders[0].Owner != value || st.Holders[0].Token != 0 {
		t.Errorf("Status of a foreign lock = %+v", st)
	}
	waiting := begin(t, d, uniqueRequest("foreign", "waiter"))
	queued(t, with, "foreign", 1)
	if err := d.Break(t.Context(), "foreign", value, 0); err != nil {
		t.Errorf("Break of a foreign lock = %v", err)
	}
	l, _ := granted(t, waiting, soonEnough, "the waiter")
	free(t, l)
	node.Must("HSET", "hash", "field", "value")
	if _, err := d.Acquire(t.Context(), uniqueRequest("hash", "owner")); !errors.Is(err, driver.ErrKind) {
		t.Errorf("Acquire of a hash = %v, want ErrKind", err)
	}
	if err := d.Admin().Foreign(t.Context(), "", func(driver.Status) bool { return true }); err == nil || !strings.Contains(err.Error(), "refuses") {
		t.Errorf("Foreign = %v", err)
	}
	if servers, err := d.Admin().Servers(t.Context()); err != nil || !strings.HasPrefix(servers[0].Refusal, "NOPERM") {
		t.Errorf("Servers = %+v, %v", servers, err)
	}
	if grace, err := d.Admin().Grace(t.Context()); err != nil || grace < floor {
		t.Errorf("Grace = %v, %v", grace, err)
	}
}

// TestScriptlessCluster refuses a Cluster in which there are no scripts.
func TestScriptlessCluster(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t, redistest.Password(password), scriptlessUser)
	o := scriptless(c.Addrs()[0])
	livetest.Await(t, "refusal", func() error {
		_, err := redislock.Open(t.Context(), o)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "a Cluster needs them") {
			return fmt.Errorf("Open = %w", err)
		}
		return nil
	})
}
