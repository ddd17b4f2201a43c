package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// durable are the options of a driver with DurableAOF, and with a grace period that no test
// mistakes for a slow machine.
func durable() []redislock.Option {
	return []redislock.Option{redislock.DurableAOF(), redislock.GraceFloor(time.Minute)}
}

// aofTTL is the TTL of leases here: long enough for restarts on a busy machine.
const aofTTL = time.Minute

// crashable adds to conf, and starts a server. cutPower makes it forget all that was not on its
// disk, and starts it again.
func crashable(t *testing.T, conf ...string) (node *redistest.Node, cutPower func()) {
	t.Helper()
	shim := livetest.NewShim(t, "redis")
	node = used(t, redistest.SingleAOF(livetest.WithEnv(t, shim.Env()...), append(conf, "appendfsync always")...))
	return node, func() {
		t.Helper()
		node.Kill()
		dir := filepath.Join(node.Dir(), "appendonlydir")
		shim.CutPower(dir)
		tear(t, dir)
		node.Restart()
	}
}

// tear adds the beginning of a write to the end of an append-only file.
func tear(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.incr.aof"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the append-only files are %q, %v; want one", files, err)
	}
	f, err := os.OpenFile(files[0], os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("*3\r\n$3\r\nSET\r\n$3\r\nj")
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// takeNow takes a lock that is free, without waiting, as soon as the server answers.
func takeNow(t *testing.T, d driver.Driver, req driver.Request, when string) driver.Lease {
	t.Helper()
	req.NoWait = true
	var l driver.Lease
	livetest.Await(t, "answer of the server", func() (err error) {
		l, err = d.Acquire(t.Context(), req)
		var grace *redislock.GraceError
		if errors.As(err, &grace) || errors.Is(err, driver.ErrHeld) {
			t.Fatalf("%s, Acquire(%q) = %v, want the lock at once", when, req.Name, err)
		}
		return err
	})
	return l
}

// TestPowerCut cuts the server's power just after a call has returned. What the call did is on the
// disk, and the server needs no grace period.
func TestPowerCut(t *testing.T) { testPowerCut(t, func(*redistest.Node) {}) }

// TestPowerCutEverysec is TestPowerCut on a server that saves once a second: somebody has changed
// the setting after New has checked it. Redis has saved just before the call, so that without
// WAITAOF the next time would be a second later.
func TestPowerCutEverysec(t *testing.T) {
	livetest.Long(t)
	testPowerCut(t, func(n *redistest.Node) { n.Must("CONFIG", "SET", "appendfsync", "everysec") },
		redistest.Named(t, "Redis-8.6.2").Conf(t))
}

func testPowerCut(t *testing.T, opened func(*redistest.Node), conf ...string) {
	t.Helper()
	t.Parallel()
	tests := []struct {
		name string
		req  func(*driver.Request)
		// the server forgets the scripts before the call
		forget bool
		call   func(t *testing.T, d *redislock.Driver, l driver.Lease) // l is the lease that was taken last
		holds  bool                                                    // the lease is held after the power cut
		// before is the end of the key before the power cut
		further func(t *testing.T, node *redistest.Node, before int64, name string)
	}{
		{name: "Grant", holds: true},
		{name: "GrantShared", req: func(r *driver.Request) { r.Shared = true }, holds: true},
		{name: "GrantByUnknownScript", forget: true, holds: true},
		{
			name: "Renewal", holds: true,
			call: func(t *testing.T, d *redislock.Driver, l driver.Lease) {
				t.Helper()
				if err := renew(t, d, l); err != nil {
					t.Fatalf("Renew = %v", err)
				}
			},
			further: func(t *testing.T, node *redistest.Node, before int64, name string) {
				t.Helper()
				if after := node.Must("PEXPIRETIME", name).(int64); after < before {
					t.Errorf("the lease ends %d ms earlier than before the power cut", before-after)
				}
			},
		},
		{
			name: "Break",
			call: func(t *testing.T, d *redislock.Driver, l driver.Lease) {
				t.Helper()
				if err := d.Break(t.Context(), "Break", l.ID()); err != nil {
					t.Fatalf("Break = %v", err)
				}
			},
		},
		{
			name: "Release",
			call: func(t *testing.T, _ *redislock.Driver, l driver.Lease) {
				t.Helper()
				free(t, l)
			},
		},
		{
			name: "ReleaseWithMinHold", holds: true,
			req: func(r *driver.Request) { r.MinHold = time.Hour },
			call: func(t *testing.T, _ *redislock.Driver, l driver.Lease) {
				t.Helper()
				free(t, l)
			},
			further: func(t *testing.T, node *redistest.Node, _ int64, name string) {
				t.Helper()
				if left := node.Must("PTTL", name).(int64); left < time.Minute.Milliseconds() {
					t.Errorf("MinHold ends in %d ms, and should last for an hour", left)
				}
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			node, cutPower := crashable(t, conf...)
			d := open(t, at(node.Addr()), durable()...)
			opened(node)
			req := request(tt.name, "second", aofTTL)
			if tt.req != nil {
				tt.req(&req)
			}
			free(t, take(t, d, request("before", "first", aofTTL)))
			if tt.forget {
				node.Must("SCRIPT", "FLUSH")
			}
			l := take(t, d, req)
			if tt.call != nil {
				tt.call(t, d, l)
			}
			end := node.Must("PEXPIRETIME", tt.name).(int64)
			cutPower()
			if held := node.Must("EXISTS", tt.name) == int64(1); held != tt.holds {
				t.Fatalf("after a power cut the lock is held: %v, want %v", held, tt.holds)
			}
			if tt.further != nil {
				tt.further(t, node, end, tt.name)
			}
			other := takeNow(t, d, request("another", "third", aofTTL), "after a power cut")
			if token(other) <= token(l) {
				t.Errorf("token %d after %d", token(other), token(l))
			}
			if tt.holds {
				refused(t, d, request(tt.name, "third", aofTTL), "after a power cut")
			}
		})
	}
}

// TestUnsaved keeps the server from writing to its disk. Nothing is granted, renewed or broken, and
// nobody is told that a free lock is held. When the disk has it, the waiter gets the lock.
func TestUnsaved(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		off, on  func(*redistest.Node)
		contains string
	}{
		{
			name: "NoFsync",
			off: func(n *redistest.Node) {
				n.Must("CONFIG", "SET", "no-appendfsync-on-rewrite", "yes")
				n.Must("CONFIG", "SET", "rdb-key-save-delay", 100_000_000)
				n.Must("BGSAVE")
			},
			on:       func(n *redistest.Node) { n.Must("CONFIG", "SET", "no-appendfsync-on-rewrite", "no") },
			contains: "not written within",
		},
		{
			name:     "AppendonlyNo",
			off:      func(n *redistest.Node) { n.Must("CONFIG", "SET", "appendonly", "no") },
			on:       func(n *redistest.Node) { n.Must("CONFIG", "SET", "appendonly", "yes") },
			contains: "appendonly is disabled",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			node := used(t, redistest.SingleAOF(t, "appendfsync always"))
			d := open(t, at(node.Addr()), durable()...)
			held := take(t, d, request("held", "holder", aofTTL))
			tt.off(node)
			req := request("free", "other", aofTTL)
			req.NoWait = true
			livetest.Await(t, fmt.Sprintf("error that says %q", tt.contains), func() error { // a busy server says nothing in time
				l, err := d.Acquire(t.Context(), req)
				if l != nil || !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrHeld) {
					t.Fatalf("Acquire = %v, %v, want ErrUnavailable with %q", l, err, tt.contains)
				}
				if !strings.Contains(err.Error(), tt.contains) {
					return err
				}
				return nil
			})
			refused(t, d, request("held", "other", aofTTL), "while nothing is saved")
			if err := renew(t, d, held); err == nil || errors.Is(err, driver.ErrLost) {
				t.Errorf("Renew = %v, want an error that says nothing of a loss", err)
			}
			waiter := begin(t, d, request("waited for", "waiter", aofTTL))
			brief, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if err := d.Break(brief, "held", held.ID()); err == nil || errors.Is(err, driver.ErrLost) {
				t.Errorf("Break = %v, want an error that says nothing of a loss", err)
			}
			pending(t, waiter, "the waiter", "while nothing is saved")
			tt.on(node)
			l, _ := granted(t, waiter, enough, "the waiter")
			free(t, l)
		})
	}
}

// TestDurableGrace has a server that may have forgotten something although it knows of the lock. It
// grants nothing, as without DurableAOF.
func TestDurableGrace(t *testing.T) {
	t.Parallel()
	rewritten := func(t *testing.T, n *redistest.Node) {
		t.Helper()
		livetest.Await(t, "append-only file", func() error {
			if f := n.Info("persistence"); f["aof_rewrites"] == "0" || f["aof_rewrite_in_progress"] != "0" ||
				f["aof_rewrite_scheduled"] != "0" {
				return fmt.Errorf("%s rewrites, in progress: %s", f["aof_rewrites"], f["aof_rewrite_in_progress"])
			}
			return nil
		})
	}
	tests := []struct {
		name  string
		conf  string
		begin func(t *testing.T, n *redistest.Node) // before the driver is opened
		spoil func(t *testing.T, n *redistest.Node, p *livetest.Proxy)
		knows bool // the server knows of the lock that is held
	}{
		{
			// The file was switched on, but not in the configuration file.
			name: "Snapshot", conf: "appendonly no", knows: true,
			begin: func(t *testing.T, n *redistest.Node) {
				t.Helper()
				n.Must("CONFIG", "SET", "appendonly", "yes")
				rewritten(t, n)
			},
			spoil: func(t *testing.T, n *redistest.Node, _ *livetest.Proxy) {
				t.Helper()
				n.Must("SAVE")
				n.Kill()
				n.Restart()
			},
		},
		{
			name: "SnapshotThenFile", conf: "appendonly no", knows: true,
			begin: func(t *testing.T, n *redistest.Node) {
				t.Helper()
				n.Must("CONFIG", "SET", "appendonly", "yes")
				rewritten(t, n)
			},
			spoil: func(t *testing.T, n *redistest.Node, _ *livetest.Proxy) {
				t.Helper()
				n.Must("SAVE")
				n.Kill()
				n.Restart()
				n.Must("CONFIG", "SET", "appendonly", "yes")
				rewritten(t, n)
			},
		},
		{
			name: "Rewritten", knows: true,
			spoil: func(t *testing.T, n *redistest.Node, _ *livetest.Proxy) {
				t.Helper()
				n.Kill()
				n.Restart()
				n.Must("BGREWRITEAOF")
				rewritten(t, n)
			},
		},
		{
			name: "NoFile",
			spoil: func(t *testing.T, n *redistest.Node, _ *livetest.Proxy) {
				t.Helper()
				n.Kill()
				if err := os.RemoveAll(filepath.Join(n.Dir(), "appendonlydir")); err != nil {
					t.Fatal(err)
				}
				n.Restart()
			},
		},
		{
			name: "Promoted", knows: true,
			spoil: func(t *testing.T, n *redistest.Node, p *livetest.Proxy) {
				t.Helper()
				replica := redistest.SingleAOF(t, "appendfsync always")
				follow(t, replica, n)
				n.Kill()
				replica.Must("REPLICAOF", "NO", "ONE")
				p.Redirect(replica.Addr())
				p.Cut()
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			node := redistest.SingleAOF(t, "appendfsync always", tt.conf)
			if tt.begin != nil {
				tt.begin(t, node)
			}
			used(t, node)
			p := livetest.NewProxy(t, node.Addr())
			d := open(t, at(p.Addr()), durable()...)
			take(t, d, request("held", "holder", aofTTL))
			tt.spoil(t, node, p)
			livetest.Await(t, "answer of the server", func() error { _, err := d.Status(t.Context(), "held"); return err })
			if tt.knows {
				refused(t, d, request("held", "other", aofTTL), "by a server that knows of the holder")
			}
			withheld(t, d, request("free", "other", aofTTL), "by a server that may have forgotten something")
		})
	}
}

// TestDurableRefuses opens servers on which DurableAOF would promise nothing.
func TestDurableRefuses(t *testing.T) {
	t.Parallel()
	single := func(t *testing.T, conf ...string) *redistest.Node {
		t.Helper()
		return redistest.SingleAOF(t, append(conf, "appendfsync always")...)
	}
	tests := []struct {
		name string
		at   func(t *testing.T) rueidis.ClientOption
		opts []redislock.Option
		want string
	}{
		{"AppendonlyNo", func(t *testing.T) rueidis.ClientOption {
			return at(redistest.SingleAOF(t, "appendonly no").Addr())
		}, nil, "appendonly is no"},
		{"Everysec", func(t *testing.T) rueidis.ClientOption {
			return at(redistest.SingleAOF(t, "appendfsync everysec").Addr())
		}, nil, "appendfsync is everysec"},
		{"NoFsyncOnRewrite", func(t *testing.T) rueidis.ClientOption {
			return at(single(t, "no-appendfsync-on-rewrite yes").Addr())
		}, nil, "no-appendfsync-on-rewrite is yes"},
		{"TooOld", func(t *testing.T) rueidis.ClientOption { return at(fakeRedis(t, "7.0.15")) }, nil, "7.2 is the oldest"},
		{"NoGrace", func(t *testing.T) rueidis.ClientOption { return at(single(t).Addr()) },
			[]redislock.Option{redislock.FailoverGrace(false)}, "needs FailoverGrace"},
		{"Sentinel", func(t *testing.T) rueidis.ClientOption { return bySentinel(redistest.Sentinel(t)) }, nil,
			"not for a Cluster or Sentinel"},
		{"Cluster", func(t *testing.T) rueidis.ClientOption {
			return rueidis.ClientOption{InitAddress: redistest.Cluster(t).Addrs()}
		}, nil, "not for a Cluster or Sentinel"},
		{"Replicas", func(t *testing.T) rueidis.ClientOption {
			t.Helper()
			node := single(t)
			follow(t, redistest.SingleAOF(t), node)
			return at(node.Addr())
		}, nil, "has replicas"},
		{"NoWAITAOF", func(t *testing.T) rueidis.ClientOption {
			t.Helper()
			o := at(single(t, "user some on >"+password+" ~* &* +@all -waitaof").Addr())
			o.Username = "some"
			return o
		}, nil, "waitaof"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := tt.at(t)
			if o.Username == "" {
				o.Password = ""
			}
			d, err := redislock.Open(t.Context(), o, append(durable(), tt.opts...)...)
			if d != nil || err == nil || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open = %v, %v, want a refusal with %q", d, err, tt.want)
			}
		})
	}
}

// TestSavedOnTheSameConnection makes a server forget the scripts, and takes and renews locks. Each
// script is followed by a WAITAOF on its own connection, also one that goes again with its text.
func TestSavedOnTheSameConnection(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.SingleAOF(t, "appendfsync always"))
	d := open(t, at(node.Addr()), redislock.DurableAOF(), redislock.GraceFloor(distantTTL))
	node.Must("SCRIPT", "FLUSH")
	redistest.CheckSaved(t, node, func() {
		leases := []driver.Lease{
			take(t, d, request("short", "one", distantTTL)), take(t, d, request("long", "other", aofTTL)),
		}
		for i, r := range d.Renew(t.Context(), leases) {
			if r.Err != nil {
				t.Errorf("Renew of lease %d = %v", i, r.Err)
			}
		}
		if err := d.Close(); err != nil { // it ends what the driver does in the background
			t.Error(err)
		}
	})
}

// A savingConn is a Conn to a server that grants everything. It gives one reply to each WAITAOF.
type savingConn struct {
	answer string
	saved  redislock.Reply
}

func (c savingConn) Masters(context.Context) ([]redislock.Node, error) {
	return []redislock.Node{c}, nil
}

func (savingConn) Do(_ context.Context, command ...string) ([]string, error) {
	switch command[0] {
	case "INFO":
		return []string{"redis_version:8.0.0\r\nrole:master\r\nrun_id:1\r\nconnected_slaves:0\r\n"}, nil
	case "CONFIG":
		return []string{command[2], map[string]string{"appendonly": "yes", "appendfsync": "always",
			"no-appendfsync-on-rewrite": "no"}[command[2]]}, nil
	}
	return []string{"1", "0"}, nil
}

func (c savingConn) Eval(_ context.Context, calls ...redislock.Call) []redislock.Reply {
	replies := []redislock.Reply{{Lines: []string{c.answer}}}
	for range calls[1:] {
		replies = append(replies, c.saved)
	}
	return replies
}

func (savingConn) Subscribe(ctx context.Context, _ string, _ bool, _ func(), _ func(string)) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (savingConn) IsCluster() bool  { return false }
func (savingConn) IsSentinel() bool { return false }
func (savingConn) Close()           {}

// TestAnswersOfWAITAOF has a server answer to WAITAOF that it has saved a grant, and everything
// else that it may answer.
func TestAnswersOfWAITAOF(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		answer string
		saved  redislock.Reply
		want   error
	}{
		{"Saved", "g 5 0", redislock.Reply{Lines: []string{"1", "0"}}, nil},
		{"NotInTime", "g 5 0", redislock.Reply{Lines: []string{"0", "0"}}, driver.ErrUnavailable},
		{"Nothing", "g 5 0", redislock.Reply{}, driver.ErrUnavailable},
		{"OneNumber", "g 5 0", redislock.Reply{Lines: []string{"1"}}, driver.ErrUnavailable},
		{"Refused", "g 5 0", redislock.Reply{Err: &redislock.ReplyError{Text: "ERR WAITAOF cannot be used"}},
			driver.ErrUnavailable},
		{"NoAnswer", "g 5 0", redislock.Reply{Err: errors.New("broken pipe")}, driver.ErrUnavailable},
		{"HeldAndNotSaved", "h 100", redislock.Reply{Lines: []string{"0", "0"}}, driver.ErrHeld},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := openFake(t, savingConn{answer: tt.answer, saved: tt.saved}, redislock.DurableAOF())
			if f := d.Info().Fencing; f != driver.FencingDurable {
				t.Errorf("Fencing is %v, want durable", f)
			}
			req := request("job", "owner", aofTTL)
			req.NoWait = true
			l, err := d.Acquire(t.Context(), req)
			if (l != nil) != (tt.want == nil) || !errors.Is(err, tt.want) || errors.Is(err, driver.ErrHeld) != (tt.want == driver.ErrHeld) { //nolint:errorlint // the wanted one
				t.Errorf("Acquire = %v, %v, want %v", l, err, tt.want)
			}
		})
	}
}

// TestReleaseByIDIsSaved releases a lease of another process on a server that does not get it to
// its disk. It may have a MinHold, which a crash that undid the release would end.
func TestReleaseByIDIsSaved(t *testing.T) {
	t.Parallel()
	unsaved := savingConn{answer: "o", saved: redislock.Reply{Lines: []string{"0", "0"}}}
	d := openFake(t, unsaved, redislock.DurableAOF())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // it is retried until then
	defer cancel()
	if err := d.Lease("job", "id", aofTTL).Release(ctx); err == nil {
		t.Error("Release = nil, although the disk may lack it")
	}
}
