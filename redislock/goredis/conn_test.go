package goredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/rediskit"
)

// A rig is a conn with connections that can be broken.
type rig struct {
	*conn
	proxies []*livetest.Proxy
}

// TestConn runs all cases on both kinds of clients.
func TestConn(t *testing.T) {
	cases := []struct {
		name string
		run  func(t *testing.T, r rig)
	}{
		{"LostAnswer", lostAnswer},
		{"Deadline", deadline},
		{"Hanging", hanging},
		{"NoScript", noScript},
		{"ReplyError", replyError},
		{"Masters", masters},
		{"Subscribe", subscribe},
	}
	for _, kind := range []struct {
		name string
		run  func(t *testing.T) (addrs []string, connect func(t *testing.T, dial dialer) *conn)
	}{
		{"Client", func(t *testing.T) ([]string, func(*testing.T, dialer) *conn) {
			addr := redistest.Single(t).Addr()
			return []string{addr}, func(t *testing.T, dial dialer) *conn {
				client := redis.NewClient(&redis.Options{Addr: addr, Dialer: dial, ContextTimeoutEnabled: true})
				t.Cleanup(func() { client.Close() })
				return &conn{client: client}
			}
		}},
		{"ClusterClient", func(t *testing.T) ([]string, func(*testing.T, dialer) *conn) {
			addrs := redistest.Cluster(t).Addrs()
			return addrs, func(t *testing.T, dial dialer) *conn {
				client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Dialer: dial, ContextTimeoutEnabled: true})
				t.Cleanup(func() { client.Close() })
				return &conn{client: client, cluster: client}
			}
		}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			addrs, connect := kind.run(t)
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					proxies := make([]*livetest.Proxy, len(addrs))
					for i, addr := range addrs {
						proxies[i] = livetest.NewProxy(t, addr)
					}
					r := rig{connect(t, func(ctx context.Context, network, addr string) (net.Conn, error) {
						return new(net.Dialer).DialContext(ctx, network, proxies[slices.Index(addrs, addr)].Addr())
					}), proxies}
					r.all(t, "FLUSHALL")
					r.all(t, "SCRIPT", "FLUSH")
					c.run(t, r)
				})
			}
		})
	}
}

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// all sends a command to all masters.
func (r rig) all(t *testing.T, command ...string) {
	t.Helper()
	masters, err := r.Masters(t.Context())
	if err != nil {
		t.Fatalf("Masters = %v", err)
	}
	for _, m := range masters {
		if _, err := m.Do(t.Context(), command...); err != nil {
			t.Fatalf("%s = %v", command, err)
		}
	}
}

// each applies f to all proxies.
func (r rig) each(f func(p *livetest.Proxy)) {
	for _, p := range r.proxies {
		f(p)
	}
}

func script(text string) *redislock.Script {
	return rediskit.NewScript(fstest.MapFS{"script/test.lua": {Data: []byte(text)}}, "test")
}

// push returns a script that appends to a list and returns the list.
func push() *redislock.Script {
	return script("redis.call('RPUSH', KEYS[1], ARGV[1]) return redis.call('LRANGE', KEYS[1], 0, -1)")
}

// call returns a call of push.
func call(key, arg string) redislock.Call {
	return redislock.Call{Script: push(), Keys: []string{key}, Args: []string{arg}}
}

// wantList checks the list that a call of push returned.
func wantList(t *testing.T, got redislock.Reply, want ...string) {
	t.Helper()
	if got.Err != nil || !slices.Equal(got.Lines, want) {
		t.Errorf("list = %q, %v, want %q", got.Lines, got.Err, want)
	}
}

// lostAnswer loses the answers to commands. By default go-redis would send them again, and
// report success.
func lostAnswer(t *testing.T, r rig) {
	ctx := t.Context()
	unanswered := func(replies ...redislock.Reply) {
		t.Helper()
		for _, got := range replies {
			var answered *redislock.ReplyError
			if got.Err == nil || errors.As(got.Err, &answered) {
				t.Errorf("lost answer = %q, %v, want an error that is no answer", got.Lines, got.Err)
			}
		}
	}
	losing := func(what string, f func()) {
		t.Helper()
		r.each(func(p *livetest.Proxy) { p.LoseAnswers(1, livetest.ThenClose, what) })
		f()
		r.each((*livetest.Proxy).Heal)
	}
	// Losing one is enough: {a} and {a}2 lie in one slot, and so in one pipeline.
	losing("eval\r", func() { unanswered(r.Eval(ctx, call("{a}", "1"))...) })
	wantList(t, r.Eval(ctx, call("{a}", "2"))[0], "1", "2")
	losing("evalsha", func() { unanswered(r.Eval(ctx, call("{a}", "3"))...) })
	wantList(t, r.Eval(ctx, call("{a}", "4"))[0], "1", "2", "3", "4")
	losing("evalsha", func() { unanswered(r.Eval(ctx, call("{a}", "5"), call("{a}2", "5"))...) })
	wantList(t, r.Eval(ctx, call("{a}", "6"))[0], "1", "2", "3", "4", "5", "6")
	wantList(t, r.Eval(ctx, call("{a}2", "6"))[0], "5", "6")

	masters, err := r.Masters(ctx)
	if err != nil {
		t.Fatalf("Masters = %v", err)
	}
	losing("SETNX", func() {
		for _, m := range masters { // one of them has the key
			got, err := m.Do(ctx, "SETNX", "once", "1")
			unanswered := err != nil && !errors.As(err, new(*redislock.ReplyError))
			if !unanswered && (err == nil || !strings.HasPrefix(err.Error(), "MOVED")) {
				t.Errorf("lost answer = %v, %v, want an error that is no answer", got, err)
			}
		}
	})

	// This is why the commands are exempt from retries.
	losing("rpush", func() {
		if got, err := r.client.RPush(ctx, "plain", "1").Result(); got != 2 || err != nil {
			t.Errorf("RPUSH whose answer was lost = %d, %v, want 2: go-redis does not repeat it any more?", got, err)
		}
	})
}

// A deadlineContext has a deadline without a timer, like contexts of the driver.
type deadlineContext struct {
	context.Context
	at time.Time
}

func (u deadlineContext) Deadline() (time.Time, bool) { return u.at, true }

// deadline checks that calls end with their contexts while the server does not answer.
func deadline(t *testing.T, r rig) {
	wantList(t, r.Eval(t.Context(), call("a", "1"))[0], "1")
	r.each(func(p *livetest.Proxy) { p.Sever() })
	const d = 200 * time.Millisecond
	gone := errors.New("gone")
	calls := map[string]func(ctx context.Context) error{
		"Eval": func(ctx context.Context) error { return r.Eval(ctx, call("a", "2"))[0].Err },
		"Evals": func(ctx context.Context) error {
			return r.Eval(ctx, call("a", "2"), call("b", "2"))[1].Err
		},
		"Do": func(ctx context.Context) error {
			masters, err := r.Masters(ctx)
			if err == nil {
				_, err = masters[0].Do(ctx, "PING")
			}
			return err
		},
	}
	slack := livetest.Slack(t)
	for name, f := range calls {
		contexts := map[string]func() (context.Context, context.CancelFunc){
			"Deadline": func() (context.Context, context.CancelFunc) {
				return deadlineContext{t.Context(), time.Now().Add(d)}, func() {}
			},
			"Cancel": func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(d, func() { cancel(gone) })
				return ctx, func() { cancel(nil) }
			},
		}
		for kind, make := range contexts {
			if kind == "Cancel" && name != "Do" {
				continue // a Conn need not notice that
			}
			start := time.Now()
			ctx, cancel := make()
			err := f(ctx)
			cancel()
			took := time.Since(start)
			if !errors.Is(err, gone) && !isTimeout(err) || took < d || took > d+2*time.Second+slack() {
				t.Errorf("%s with %s = %v after %v, want its end after %v", name, kind, err, took, d)
			}
		}
	}
}

// hanging checks that a call whose answer never comes does not keep the next one waiting.
func hanging(t *testing.T, r rig) {
	wantList(t, r.Eval(t.Context(), call("a", "0"))[0], "0")
	r.each(func(p *livetest.Proxy) { p.LoseAnswers(1, livetest.ThenHang, "evalsha") })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // in which the server gets the request
	defer cancel()
	if got := r.Eval(ctx, call("a", "1"))[0]; !isTimeout(got.Err) {
		t.Fatalf("call with a connection that hangs = %q, %v, want a timeout", got.Lines, got.Err)
	}
	slack := livetest.Slack(t)
	start := time.Now()
	wantList(t, r.Eval(t.Context(), call("a", "2"))[0], "0", "1", "2")
	if took := time.Since(start); took > 2*time.Second+slack() {
		t.Errorf("the next call took %v, want no wait", took)
	}
}

// isTimeout reports whether a call ended with the deadline of its context: the client returns the
// error of the connection.
func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

func noScript(t *testing.T, r rig) {
	ctx := t.Context()
	wantList(t, r.Eval(ctx, call("a", "1"))[0], "1")
	r.all(t, "SCRIPT", "FLUSH")
	got := r.Eval(ctx, call("a", "2"), call("b", "1"), call("c", "1"))
	wantList(t, got[0], "1", "2")
	wantList(t, got[1], "1")
	wantList(t, got[2], "1")
}

// replyError checks that errors of the server are told from other errors.
func replyError(t *testing.T, r rig) {
	ctx := t.Context()
	var answered *redislock.ReplyError
	got := r.Eval(ctx, redislock.Call{Script: script("return redis.error_reply('LOADING so it says')"),
		Keys: []string{"a"}})[0]
	if !errors.As(got.Err, &answered) || !strings.HasPrefix(answered.Text, "LOADING") {
		t.Errorf("error of a script = %v, want a ReplyError that begins with LOADING", got.Err)
	}
}

func TestDo(t *testing.T) {
	node := redistest.Single(t)
	node.Must("SET", "key", "value")
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: node.Addr(), Protocol: protocol})
			defer client.Close()
			masters, err := (&conn{client: client}).Masters(t.Context())
			if err != nil || len(masters) != 1 {
				t.Fatalf("Masters = %v, %v, want one", masters, err)
			}
			tests := []struct {
				command []string
				want    []string
			}{
				{[]string{"GET", "key"}, []string{"value"}},
				{[]string{"GET", "none"}, nil},
				{[]string{"STRLEN", "key"}, []string{"5"}},
				{[]string{"CONFIG", "GET", "maxmemory"}, []string{"maxmemory", "0"}},
				{[]string{"SCAN", "0"}, []string{"0", "key"}},
				{[]string{"ROLE"}, []string{"master", "0"}},
			}
			for _, tt := range tests {
				got, err := masters[0].Do(t.Context(), tt.command...)
				if err != nil || !slices.Equal(got, tt.want) {
					t.Errorf("%v = %q, %v, want %q", tt.command, got, err, tt.want)
				}
			}
			var answered *redislock.ReplyError
			if _, err := masters[0].Do(t.Context(), "LLEN", "key"); !errors.As(err, &answered) {
				t.Errorf("LLEN of a string = %v, want a ReplyError", err)
			}
		})
	}
}

func masters(t *testing.T, r rig) {
	masters, err := r.Masters(t.Context())
	if want := (len(r.proxies) + 1) / 2; err != nil || len(masters) != want { // half of a Cluster's nodes
		t.Errorf("Masters = %v, %v, want %d", masters, err, want)
	}
}

// A testSubscription is an active subscription.
type testSubscription struct {
	ready    chan struct{}
	messages chan string
	ended    chan error
	cancel   context.CancelCauseFunc
}

func listen(t *testing.T, r rig, channel string) testSubscription {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	l := testSubscription{ready: make(chan struct{}, 10), messages: make(chan string, 100), ended: make(chan error, 1),
		cancel: cancel}
	go func() {
		l.ended <- r.Subscribe(ctx, channel, r.IsCluster(), func() { l.ready <- struct{}{} },
			func(m string) { l.messages <- m })
	}()
	select {
	case <-l.ready:
	case err := <-l.ended:
		t.Fatalf("Subscribe = %v, want it to listen", err)
	case <-time.After(livetest.Patience):
		t.Fatal("no subscription is confirmed")
	}
	return l
}

// wantEnd checks how the subscription ends.
func (l testSubscription) wantEnd(t *testing.T, within time.Duration, matches func(error) bool) {
	t.Helper()
	start, slack := time.Now(), livetest.Slack(t)
	select {
	case err := <-l.ended:
		if err == nil || !matches(err) {
			t.Errorf("Subscribe = %v, want another error", err)
		}
		if took := time.Since(start); took > within+slack() {
			t.Errorf("Subscribe returned after %v, want %v at most", took, within)
		}
	case <-time.After(livetest.Patience):
		t.Error("Subscribe does not return")
	}
}

func subscribe(t *testing.T, r rig) {
	ctx, gone := t.Context(), errors.New("gone")
	publish := func(channel, m string) int64 {
		t.Helper()
		command := r.client.Publish
		if r.IsCluster() {
			command = r.client.SPublish
		}
		n, err := command(ctx, channel, m).Result()
		if err != nil {
			t.Fatalf("PUBLISH = %v", err)
		}
		return n
	}

	l := listen(t, r, "channel")
	for i := range 50 {
		if n := publish("channel", fmt.Sprint(i)); n != 1 {
			t.Fatalf("%d listen, want 1", n)
		}
	}
	for i := range 50 {
		select {
		case m := <-l.messages:
			if m != fmt.Sprint(i) {
				t.Fatalf("message %q, want %d", m, i)
			}
		case <-time.After(livetest.Patience):
			t.Fatalf("no message %d", i)
		}
	}
	l.cancel(gone)
	l.wantEnd(t, 3*time.Second, func(err error) bool { return errors.Is(err, gone) })
	livetest.Await(t, "end of the subscription at the server", func() error {
		if n := publish("channel", ""); n != 0 {
			return fmt.Errorf("%d listen", n)
		}
		return nil
	})

	l = listen(t, r, "channel")
	r.each((*livetest.Proxy).Cut)
	l.wantEnd(t, 5*time.Second, func(err error) bool { return !errors.Is(err, gone) })

	l = listen(t, r, "channel")
	r.each(func(p *livetest.Proxy) { p.Sever() })
	l.wantEnd(t, 3*silenceTimeout+time.Second, func(err error) bool { return strings.Contains(err.Error(), "silent") })

	// Subscribe returns even if the server is unreachable.
	ctx, cancel := context.WithCancelCause(ctx)
	time.AfterFunc(200*time.Millisecond, func() { cancel(gone) })
	start, machine := time.Now(), livetest.Lateness(t)
	err := r.Subscribe(ctx, "channel", r.IsCluster(), func() { t.Error("ready without a server") }, func(string) {})
	if took, late := time.Since(start), machine(); !errors.Is(err, gone) || took > time.Second+10*late {
		t.Errorf("Subscribe without a server = %v after %v, want %v", err, took, gone)
	}
}

// TestSubscriptionPings checks that a subscription without messages is kept.
func TestSubscriptionPings(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			t.Parallel()
			client := redis.NewClient(&redis.Options{Addr: redistest.Single(t).Addr(), Protocol: protocol})
			t.Cleanup(func() { client.Close() })
			for { // until no delay of the machine looks like the silence of the server
				l, late := listen(t, rig{conn: &conn{client: client}}, "channel"), livetest.Lateness(t)
				select {
				case err := <-l.ended:
					if late() > silenceTimeout/2 {
						continue
					}
					t.Errorf("Subscribe = %v, want it to listen on", err)
				case <-time.After(3*silenceTimeout + silenceTimeout/2):
				}
				return
			}
		})
	}
}
