package goredis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sniblock/snib/redislock"
)

// A conn is a redislock.Conn on go-redis.
type conn struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // the same, if it is one

	mu   sync.Mutex
	late map[string][]*trip // those that nobody waits for any more, by what they are about
}

// A trip is calls on their way to the server and back.
type trip struct {
	about string
	began time.Time
	over  chan struct{} // closed in the end
}

var _ redislock.Conn = (*conn)(nil)

const (
	// overtaking is how old a call must be, if there is no answer yet, before it may be overtaken.
	overtaking = time.Second

	// silence is how long a subscription may hear nothing before it asks the server for a sign of life, and how long it waits for one.
	silence = 2 * time.Second
)

// once is a command that go-redis sends only once, however the connection fares.
type once struct{ *redis.Cmd }

// onceLines is the same for one whose reply is an array of strings.
type onceLines struct{ *redis.StringSliceCmd }

func (once) NoRetry() bool      { return true }
func (onceLines) NoRetry() bool { return true }

var _ = redis.Cmder.NoRetry // what the two override

func (c *conn) IsCluster() bool { return c.cluster != nil }

// IsSentinel tells what [redis.NewFailoverClient] makes by the address that it gives the client.
func (c *conn) IsSentinel() bool {
	client, ok := c.client.(*redis.Client)
	return ok && client.Options().Addr == "FailoverClient"
}

func (c *conn) Close() {} // the client is the user's

// bounded calls f and returns when it does, or when ctx is done. Clients of go-redis don't look at ctx while they wait for a server.
func bounded[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	if at, ok := ctx.Deadline(); ok { // the driver's contexts may have one that nothing watches
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, at)
		defer cancel()
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f(ctx)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// Eval implements [redislock.Conn]. On a connection of its own a call could overtake an earlier one whose caller has given up, so it waits
// for that.
func (c *conn) Eval(ctx context.Context, calls ...redislock.Call) []redislock.Reply {
	run := c.prepare(ctx, calls) // now: the caller uses the arguments again when we return
	t := &trip{about: subject(calls), began: time.Now(), over: make(chan struct{})}
	before := c.ahead(t)
	replies, err := bounded(ctx, func(ctx context.Context) ([]redislock.Reply, error) {
		defer c.end(t)
		for _, earlier := range before {
			earlier.wait()
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return run(ctx), nil
	})
	if err != nil {
		c.abandon(t)
		replies = make([]redislock.Reply, len(calls))
		for i := range replies {
			replies[i].Err = err
		}
	}
	return replies
}

// subject returns what calls are about: the key that they have in common, which stands for their slot. Calls in several slots renew leases,
// and may overtake others.
func subject(calls []redislock.Call) string {
	about := calls[0].Keys[0]
	for _, call := range calls {
		if call.Keys[0] != about {
			return ""
		}
	}
	return about
}

// ahead returns the trips that t must not overtake.
func (c *conn) ahead(t *trip) []*trip {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.late[t.about])
}

// abandon notes that nobody waits for t, if it is not over.
func (c *conn) abandon(t *trip) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-t.over:
		return
	default:
	}
	if t.about == "" {
		return
	}
	if c.late == nil {
		c.late = make(map[string][]*trip)
	}
	c.late[t.about] = append(c.late[t.about], t)
}

func (c *conn) end(t *trip) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(t.over)
	if all, ok := c.late[t.about]; ok {
		all = slices.DeleteFunc(all, func(other *trip) bool { return other == t })
		if c.late[t.about] = all; len(all) == 0 {
			delete(c.late, t.about)
		}
	}
}

// wait returns when t is over, or so old that it must be lost.
func (t *trip) wait() {
	timer := time.NewTimer(time.Until(t.began.Add(overtaking)))
	defer timer.Stop()
	select {
	case <-t.over:
	case <-timer.C:
	}
}

// prepare returns a function that makes the calls. It has nothing of them.
func (c *conn) prepare(ctx context.Context, calls []redislock.Call) func(context.Context) []redislock.Reply {
	scripts, commands := make([]*redislock.Script, len(calls)), make([]*onceLines, len(calls))
	for i, call := range calls {
		args := make([]any, 0, 3+len(call.Keys)+len(call.Args))
		args = append(args, "EVALSHA", call.Script.SHA1, strconv.Itoa(len(call.Keys)))
		for _, key := range call.Keys {
			args = append(args, key)
		}
		for _, arg := range call.Args {
			args = append(args, arg)
		}
		scripts[i], commands[i] = call.Script, newCommand(ctx, args)
	}
	return func(ctx context.Context) []redislock.Reply {
		if len(commands) == 1 {
			_ = c.client.Process(ctx, commands[0]) // the command has the error, here and below
		} else {
			pipeline := c.client.Pipeline()
			for _, cmd := range commands {
				_ = pipeline.Process(ctx, cmd)
			}
			_, _ = pipeline.Exec(ctx)
		}
		replies := make([]redislock.Reply, len(commands))
		for i, cmd := range commands {
			if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") && ctx.Err() == nil {
				args := cmd.Args()
				args[0], args[1] = "EVAL", scripts[i].Text
				cmd = newCommand(ctx, args)
				_ = c.client.Process(ctx, cmd)
			}
			lines, err := cmd.Result()
			replies[i] = redislock.Reply{Lines: lines, Err: c.failed(err)}
		}
		return replies
	}
}

func newCommand(ctx context.Context, args []any) *onceLines {
	return &onceLines{redis.NewStringSliceCmd(ctx, args...)}
}

// failed is [answered], and has the client look for the masters again: without its repetitions it would only do so every 10 s.
func (c *conn) failed(err error) error {
	if c.cluster != nil && err != nil {
		c.cluster.ReloadState(context.Background())
	}
	return answered(err)
}

// answered marks what the server itself answered.
func answered(err error) error {
	var reply redis.Error
	switch {
	case errors.Is(err, redis.Nil): // what it wraps is no answer to us
		return fmt.Errorf("no Sentinel knows a master of that name: %w", err)
	case errors.As(err, &reply):
		return &redislock.ReplyError{Text: reply.Error()}
	}
	return err
}

// Subscribe implements [redislock.Conn].
func (c *conn) Subscribe(
	ctx context.Context, channel string, sharded bool, ready func(), message func(string),
) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var mu sync.Mutex
	left := false
	_, err := bounded(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.listen(ctx, channel, sharded, func(received any) error {
			mu.Lock()
			defer mu.Unlock()
			switch m := received.(type) {
			case *redis.Message:
				if !left {
					message(m.Payload)
				}
			case *redis.Subscription:
				if m.Kind != "subscribe" && m.Kind != "ssubscribe" { // the slot has moved
					return errors.New("the server ended the subscription")
				}
				if !left {
					ready()
				}
			}
			return nil
		})
	})
	mu.Lock()
	left = true
	mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return c.failed(err)
}

// listen calls hear with all that comes, until it or the subscription fails. It may take a while to return when ctx is done.
func (c *conn) listen(ctx context.Context, channel string, sharded bool, hear func(any) error) error {
	client := c.client
	if c.cluster != nil { // which may be set up to read from replicas
		master, err := c.cluster.MasterForKey(ctx, channel)
		if err != nil {
			return err
		}
		client = master
	}
	sub := client.Subscribe(ctx) // to nothing yet
	w := watch(ctx, sub)
	defer w.stop()
	subscribe := sub.Subscribe
	if sharded {
		subscribe = sub.SSubscribe
	}
	err := subscribe(ctx, channel)
	for err == nil {
		var received any
		if received, err = sub.Receive(ctx); err == nil {
			w.heard.Add(1)
			err = hear(received)
		}
	}
	return w.because(err)
}

// A watcher closes a subscription when its context ends or its server is silent: go-redis waits for messages without end.
type watcher struct {
	sub    *redis.PubSub
	heard  atomic.Int64 // how many signs of life there were
	done   chan struct{}
	silent chan error // of one
}

func watch(ctx context.Context, sub *redis.PubSub) *watcher {
	w := &watcher{sub: sub, done: make(chan struct{}), silent: make(chan error, 1)}
	go w.run(ctx)
	return w
}

func (w *watcher) run(ctx context.Context) {
	defer func() { _ = w.sub.Close() }() // it ends the connection in any case
	ticks := time.NewTicker(silence)
	defer ticks.Stop()
	asked, heard := false, int64(0)
	for {
		select {
		case <-w.done:
			return
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		switch n := w.heard.Load(); {
		case n != heard:
			asked, heard = false, n
		case !asked:
			asked = true
			_ = w.sub.Ping(ctx) // if it fails, nothing will be heard
		default:
			w.silent <- fmt.Errorf("the server was silent for %v", silence)
			return
		}
	}
}

// because returns why the watcher closed the subscription, if it did, and else err.
func (w *watcher) because(err error) error {
	select {
	case why := <-w.silent:
		return why
	default:
		return err
	}
}

func (w *watcher) stop() { close(w.done) }

// Masters implements [redislock.Conn].
func (c *conn) Masters(ctx context.Context) ([]redislock.Node, error) {
	if c.cluster == nil {
		return []redislock.Node{node{c.client}}, nil
	}
	masters, err := bounded(ctx, func(ctx context.Context) ([]redislock.Node, error) {
		var mu sync.Mutex
		var all []redislock.Node
		err := c.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, node{master})
			return nil
		})
		return all, err
	})
	return masters, answered(err)
}

// A node is one server.
type node struct{ client redis.UniversalClient }

// Do implements [redislock.Node].
func (n node) Do(ctx context.Context, command ...string) (any, error) {
	args := make([]any, len(command))
	for i, arg := range command {
		args[i] = arg
	}
	reply, err := bounded(ctx, func(ctx context.Context) (any, error) {
		cmd := &once{redis.NewCmd(ctx, args...)}
		_ = n.client.Process(ctx, cmd) // the command has the error
		return cmd.Result()
	})
	if err == redis.Nil { //nolint:errorlint // an error of another kind may wrap it: that Sentinel knows no such master
		return nil, nil
	}
	return plain(reply), answered(err)
}

// plain makes maps of a reply have strings as keys, which is what they are.
func plain(reply any) any {
	switch r := reply.(type) {
	case []any:
		for i := range r {
			r[i] = plain(r[i])
		}
	case map[any]any:
		m := make(map[string]any, len(r))
		for key, value := range r {
			m[fmt.Sprint(key)] = plain(value)
		}
		return m
	}
	return reply
}
