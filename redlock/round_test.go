package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock/rediskit"
	"github.com/sniblock/snib/redlock/internal/quorum"
)

// TestParseMillis reads what nodes say of the remaining time of a key. Anybody who may write to a
// node can set any expiry, and Lua writes great numbers in its own way.
func TestParseMillis(t *testing.T) {
	tests := []struct {
		text string
		want time.Duration
	}{
		{"1500", 1500 * time.Millisecond},
		{"0", 0},
		{"-1", driver.NoExpiry},
		{"-2", 0}, // the key has just expired
		{"9e+15", maxLeft},
		{"9223372036854775807", maxLeft},
		{"nonsense", driver.NoExpiry},
		{"", driver.NoExpiry},
	}
	for _, tt := range tests {
		if got := parseMillis(tt.text); got != tt.want {
			t.Errorf("parseMillis(%q) = %v, want %v", tt.text, got, tt.want)
		}
	}
}

// TestMaxSleep checks how long a waiter sleeps without a message. Foreign clients send none.
func TestMaxSleep(t *testing.T) {
	tests := []struct {
		name        string
		err         heldError
		least, most time.Duration
	}{
		{"Ours", heldFor(time.Minute, false), heartbeatInterval, heartbeatInterval},
		{"OursEndsSoon", heldFor(time.Second, false), time.Second, 1100 * time.Millisecond},
		{"OursEndless", heldFor(-1, false), heartbeatInterval, heartbeatInterval},
		{"Foreign", heldFor(time.Minute, true), foreignPollInterval / 2, foreignPollInterval},
		{"ForeignEndsSoon", heldFor(10*time.Millisecond, true), 10 * time.Millisecond, 30 * time.Millisecond},
		{"ForeignEndless", heldFor(-1, true), foreignPollInterval / 2, foreignPollInterval},
	}
	for _, tt := range tests {
		for range 100 {
			if got := tt.err.maxSleep(); got < tt.least || got > tt.most {
				t.Fatalf("%s: maxSleep = %v, want %v to %v", tt.name, got, tt.least, tt.most)
			}
		}
	}
}

func heldFor(left time.Duration, foreign bool) heldError {
	e := heldError{foreign: foreign}
	e.Left = left
	return e
}

// TestNewestDescription reads what two of three nodes tell of a holder that has set another
// description: one of them is late. Whatever the order, the newer one is shown.
func TestNewestDescription(t *testing.T) {
	s := &snapshot{quorum: 2, nodes: 3}
	for _, label := range []string{`"first"`, `"next","set":2`, `"before","set":1`} {
		s.answers = append(s.answers, nodeSnapshot{
			Kind: "string", Now: "1", Left: "60000",
			Value: rediskit.Bytes(`nonce 7 {"since":1,"id":"me","label":` + label + `}`),
		})
	}
	for i := range s.answers {
		two := *s
		two.answers = slices.Delete(slices.Clone(s.answers), i, i+1)
		for range 2 {
			slices.Reverse(two.answers)
			want := []string{"next", "before", "next"}[i]
			if st := two.status("job"); len(st.Holders) != 1 || st.Holders[0].Holder.Label != want {
				t.Errorf("without node %d, Status = %+v, want the label %s", i, st, want)
			}
		}
	}
}

// TestNeverConnected fails to connect to a node for a release, also with a client that had a
// connection before. When the node is back, its answer that it does not have the lease must not
// pass for the success of that try.
func TestNeverConnected(t *testing.T) {
	server := redistest.Single(t)
	client, err := rueidis.NewClient(nodeOptions(rueidis.ClientOption{InitAddress: []string{server.Addr()}}))
	if err != nil {
		t.Fatal(err)
	}
	server.Kill()
	livetest.Await(t, "client without a connection", func() error {
		if err := client.Do(t.Context(), client.B().Ping().Build()).Error(); !rediskit.IsDialError(err) {
			return fmt.Errorf("PING = %w, want that it can't connect", err)
		}
		return nil
	})
	for _, client := range []rueidis.Client{nil, client} {
		n := &node{ctx: t.Context(), client: client,
			dial: func(context.Context) (rueidis.Client, error) { return nil, syscall.ECONNREFUSED }}
		l, free := lockOf("x"), new(command)
		free.set(codeFree, &l, "nonce ", "0")
		n.queue = []*command{free}
		batch := n.nextBatch(nil)
		n.fail(batch, n.execute(new(scriptCall), batch))
		if free.maybeExecuted || !slices.Contains(n.queue, free) {
			t.Errorf("after the release was not sent, it is queued: %v, perhaps executed: %t", n.queue, free.maybeExecuted)
		}
	}
}

// newIdleDriver returns a driver whose three nodes are never asked: see sendQueued.
func newIdleDriver(t *testing.T) *Driver {
	t.Helper()
	d, err := newDriver([]*node{{address: "a:1"}, {address: "b:1"}, {address: "c:1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// sendQueued returns the commands for all nodes, which count as sent from then on.
func (d *Driver) sendQueued() (commands []*command) {
	for _, n := range d.nodes {
		commands = append(commands, n.nextBatch(nil)...)
	}
	return commands
}

func answerAll(commands []*command, text string) {
	for _, cmd := range commands {
		cmd.deliver(text, nil)
	}
}

// TestCloseInFirstRound closes a driver while the nodes grant what it has asked for. Nobody gets
// the lease, and the nodes free the lock.
func TestCloseInFirstRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newIdleDriver(t)
		ended := make(chan error, 1)
		go func() {
			_, err := d.Acquire(t.Context(), driver.Request{Name: "x", ID: "o", TTL: time.Minute})
			ended <- err
		}()
		synctest.Wait()
		takes := d.sendQueued()
		go d.life.End(nil)
		synctest.Wait()
		answerAll(takes, "g 7")
		if err := <-ended; !errors.Is(err, driver.ErrClosed) {
			t.Errorf("Acquire = %v, want ErrClosed", err)
		}
		if frees := d.sendQueued(); len(frees) != 3 || frees[0].code != codeFree {
			t.Errorf("then the nodes get %v, want that they free the lock", frees)
		}
	})
}

// TestMinHoldOfLateGrant counts MinHold from the grant, and not from the request, which nodes may
// carry out late.
func TestMinHoldOfLateGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newIdleDriver(t)
		go func() {
			time.Sleep(100 * time.Millisecond)
			answerAll(d.sendQueued(), "g 7")
		}()
		l, err := d.Acquire(t.Context(), driver.Request{Name: "x", ID: "o", TTL: time.Minute, MinHold: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		go l.Release(t.Context())
		synctest.Wait()
		frees := d.sendQueued()
		if len(frees) != 3 || frees[0].code != codeFree || frees[0].args[1] != "59000" {
			t.Errorf("the nodes get %v, want that they keep the lock for 59 s", frees)
		}
		answerAll(frees, "o")
	})
}

// TestClosedNodes has two of three nodes restart under a lease. SetHolder does not say that the
// majority shows the holder. The lock is free where its key was, and Release says that.
func TestClosedNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newIdleDriver(t)
		r := &round{d: d, nonce: d.newNonce(), start: driver.Now(), sent: d.allNodes(), commands: make([]command, 3)}
		l := newLease(d, driver.Request{ID: "o", TTL: time.Minute}, lockOf("x"), r, 1)
		for i, call := range []func(context.Context) error{
			func(ctx context.Context) error { return l.SetHolder(ctx, driver.Holder{Label: "y"}) }, l.Release,
		} {
			r.commands[0].state, r.commands[1].state, r.commands[2].state = sent, sent, sent
			time.AfterFunc(time.Millisecond, func() {
				for j, n := range d.nodes {
					answerAll(n.nextBatch(nil), []string{"o", "u blank", "u"}[j])
				}
			})
			if err := call(t.Context()); errors.Is(err, driver.ErrUnavailable) != (i == 0) || i == 1 && err != nil {
				t.Errorf("call %d = %v, want that SetHolder has no majority, and that Release is done", i, err)
			}
		}
	})
}

// TestCheckMeetsRenewal checks a lease after a hint. What the nodes answer says nothing if a
// renewal succeeds meanwhile, and the validity from before is over, or a node has taken the lock
// again.
func TestCheckMeetsRenewal(t *testing.T) {
	for _, answers := range [][3]string{{"oo", "oo", ""}, {"oo", "nn", "no"}} { // to the check and the renewal
		synctest.Test(t, func(t *testing.T) {
			d := newIdleDriver(t)
			req := driver.Request{ID: "o", TTL: 300 * time.Millisecond, OnLost: func(err error) { t.Errorf("OnLost(%v)", err) }}
			d.listener.subscribers = []*subscriber{}
			l := newLease(d, req, lockOf("x"), &round{d: d, nonce: d.newNonce(), start: driver.Now()}, 1)
			time.Sleep(req.TTL / 3)
			d.listener.onSubscribed(0, breakChannel(d.nonceID), 1)
			synctest.Wait()
			time.Sleep(time.Millisecond)
			go d.Renew(t.Context(), []driver.Lease{l})
			synctest.Wait()
			for i, n := range slices.Backward(d.nodes) {
				for j, cmd := range n.nextBatch(nil)[:len(answers[i])] {
					cmd.deliver(answers[i][j:j+1], nil)
				}
			}
			time.Sleep(d.conf.timeout)
			synctest.Wait()
			if !l.isValid() {
				t.Errorf("%q: the lease that was renewed is given up, and freed", answers)
			}
			d.life.End(nil)
		})
	}
}

// TestStatusAwaitsSlowNode asks for a lock whose key a dead client left on one node. A slow node
// says that no majority can have it, so the lock is free.
func TestStatusAwaitsSlowNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newIdleDriver(t)
		shown := make(chan driver.Status, 1)
		go func() {
			st, _ := d.Status(t.Context(), "x")
			shown <- st
		}()
		synctest.Wait()
		shows := d.sendQueued()
		const left = `{"kind":"string","value":"nonce 7 {\"since\":1,\"id\":\"o\"}","left":60000,"now":"2"}`
		for i, text := range []string{left, `{"kind":"none"}`, `{"kind":"none"}`} {
			time.Sleep(time.Duration(i) * minorityTimeout)
			shows[i].deliver(text, nil)
		}
		if st := <-shown; st.Name != "x" || len(st.Holders) > 0 {
			t.Errorf("Status = %+v, want no holder", st)
		}
	})
}

// TestContendedIsNotHeld checks that no caller is told that a lock is held which several clients
// compete for, and nobody has.
func TestContendedIsNotHeld(t *testing.T) {
	a := &attempt{req: driver.Request{OnWait: func(err error) { t.Errorf("OnWait was called with %v", err) }}}
	a.noteWait(&heldError{most: 1, nodes: 3})
}

// TestFullNodes checks that a majority that has too many clients makes the store full, and that a
// minority does not.
func TestFullNodes(t *testing.T) {
	d := &Driver{params: quorum.Params{Nodes: 3, MaxTTL: time.Minute}, nodes: []*node{{}, {}, {}}}
	full := rediskit.Refusal("ERR max number of clients reached")
	for _, errs := range [][]error{{full, full, nil}, {full, errWaiting, nil}} {
		want := errs[1] == full //nolint:errorlint // as we gave it
		if err := d.noMajority(errs); errors.Is(err, driver.ErrFull) != want || !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%v, which matches ErrFull: %t, want ErrUnavailable and %t", err, !want, want)
		}
	}
}

// TestScanBoundsEachStep lists the locks of a node that takes several steps. The time for a step is
// bounded, and not that for all of them: a node that is far away may have many keys.
func TestScanBoundsEachStep(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	server.Must("EVAL", "for i = 1, 5000 do redis.call('SET', i, '') end", 0)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	noting := &notingClient{Client: client, deadlines: make(map[time.Time]bool)}
	err = (&node{client: noting}).scan(t.Context(), "", make(map[string]bool))
	if err != nil || len(noting.deadlines) < 2 {
		t.Errorf("scan = %v, with the deadlines %v", err, noting.deadlines)
	}
}

// A notingClient notes the deadlines of the requests on its dedicated connection.
type notingClient struct {
	rueidis.Client
	deadlines map[time.Time]bool
}

func (c *notingClient) Dedicate() (rueidis.DedicatedClient, func()) {
	conn, release := c.Client.Dedicate()
	return notingConn{conn, c.deadlines}, release
}

type notingConn struct {
	rueidis.DedicatedClient
	deadlines map[time.Time]bool
}

func (c notingConn) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	end, _ := ctx.Deadline()
	c.deadlines[end] = true
	return c.DedicatedClient.Do(ctx, command)
}
