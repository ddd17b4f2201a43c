package goredis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sniblock/snib/redislock"
)

// A conn is a [redislock.Conn] on a go-redis client.
type conn struct {
	client  redis.UniversalClient // of the driver alone
	cluster *redis.ClusterClient  // client, if it is a ClusterClient

	stopChecks context.CancelFunc // of the master behind Sentinel

	// clusterErr is the result of checkCluster. The driver, which asks for the masters first, finds
	// out whether another try may succeed.
	clusterErr error
}

var _ redislock.Conn = (*conn)(nil)

// silenceTimeout is how long a subscription may receive nothing before it pings the server, and
// how long it then waits for the reply.
const silenceTimeout = 2 * time.Second

// A noRetryCmd is a command that go-redis sends only once, even if the connection breaks.
type noRetryCmd struct{ *redis.Cmd }

func (noRetryCmd) NoRetry() bool { return true }

var _ = redis.Cmder.NoRetry // the method that it overrides

func (c *conn) IsCluster() bool { return c.cluster != nil }

// IsSentinel recognises a client of [redis.NewFailoverClient] by the address in its options.
func (c *conn) IsSentinel() bool {
	client, ok := c.client.(*redis.Client)
	return ok && isSentinel(client.Options())
}

func isSentinel(o *redis.Options) bool { return o.Addr == "FailoverClient" }

func (c *conn) Close() {
	c.stopChecks()
	_ = c.client.Close() // nobody can do anything about the error
}

// callWithContext calls f, and returns when f does or when ctx is done. A go-redis client need
// not notice the end of ctx while it waits for a server.
func callWithContext[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	if at, ok := ctx.Deadline(); ok { // the driver may set a deadline without a timer
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
		if at, ok := ctx.Deadline(); ok && errors.Is(r.err, os.ErrDeadlineExceeded) && !time.Now().Before(at) {
			r.err = context.DeadlineExceeded // the connection has the deadline, too, and was first
		}
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// Eval implements [redislock.Conn].
func (c *conn) Eval(ctx context.Context, calls ...redislock.Call) []redislock.Reply {
	var few [2]redis.Cmder // enough for most calls
	commands := few[:0]
	for _, call := range calls {
		commands = append(commands, commandOf(ctx, call))
	}
	c.send(ctx, commands)
	replies := make([]redislock.Reply, len(calls))
	for i := range commands {
		if err := commands[i].Err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") && ctx.Err() == nil {
			c.sendText(ctx, calls[i:], commands[i:])
		}
		value, err := commands[i].(noRetryCmd).Result()
		replies[i] = redislock.Reply{Lines: redislock.LinesOf(value), Err: c.handleError(err)}
	}
	return replies
}

// commandOf returns the command that makes a call. Its arguments point to those of the call: the
// client sends what they point to, and a string would be copied for each.
func commandOf(ctx context.Context, call redislock.Call) redis.Cmder {
	args := make([]any, 0, 3+len(call.Keys)+len(call.Args))
	if call.Script == nil {
		args = append(args, call.Command)
	} else {
		args = append(args, "evalsha", call.Script.SHA1(), strconv.Itoa(len(call.Keys)))
	}
	for i := range call.Keys {
		args = append(args, &call.Keys[i])
	}
	for i := range call.Args {
		args = append(args, &call.Args[i])
	}
	return noRetryCmd{redis.NewCmd(ctx, args...)}
}

// send sends commands, which then have their replies and errors.
func (c *conn) send(ctx context.Context, commands []redis.Cmder) {
	if len(commands) == 1 {
		_ = c.client.Process(ctx, commands[0])
		return
	}
	pipeline := c.client.Pipeline()
	for _, cmd := range commands {
		_ = pipeline.Process(ctx, cmd)
	}
	_, _ = pipeline.Exec(ctx)
}

// sendText sends the first command, whose script the server does not know, again with the text of
// the script, and then the commands behind it that are no scripts.
func (c *conn) sendText(ctx context.Context, calls []redislock.Call, commands []redis.Cmder) {
	args := commands[0].Args()
	args[0], args[1] = "eval", calls[0].Script.Text()
	commands[0] = noRetryCmd{redis.NewCmd(ctx, args...)}
	n := 1
	for ; n < len(commands) && calls[n].Script == nil; n++ {
		commands[n] = commandOf(ctx, calls[n])
	}
	c.send(ctx, commands[:n])
}

// handleError is asReplyError, and makes a ClusterClient look for the masters again. Without
// retries it would otherwise do that only every 10 s.
func (c *conn) handleError(err error) error {
	if c.cluster != nil && err != nil {
		c.cluster.ReloadState(context.Background())
	}
	return asReplyError(err)
}

// asReplyError converts an error that the server replied with into a [redislock.ReplyError].
func asReplyError(err error) error {
	if errors.Is(err, redis.Nil) { // here this is not a reply to our command
		return fmt.Errorf("no Sentinel knows a master of that name: %w", err)
	}
	if reply, ok := errors.AsType[redis.Error](err); ok {
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
	returned := false
	_, err := callWithContext(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.listen(ctx, channel, sharded, func(received any) error {
			mu.Lock()
			defer mu.Unlock()
			switch m := received.(type) {
			case *redis.Message:
				if !returned {
					message(m.Payload)
				}
			case *redis.Subscription:
				if m.Kind != "subscribe" && m.Kind != "ssubscribe" { // the slot has moved
					return errors.New("the server ended the subscription")
				}
				if !returned {
					ready()
				}
			}
			return nil
		})
	})
	mu.Lock()
	returned = true
	mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return c.handleError(err)
}

// listen calls onReceive with everything that the subscription receives, until one of the two
// fails. When ctx is done, it may take a while to return.
func (c *conn) listen(ctx context.Context, channel string, sharded bool, onReceive func(any) error) error {
	client := c.client
	if c.cluster != nil { // the client may be set to read from replicas
		master, err := c.cluster.MasterForKey(ctx, channel)
		if err != nil {
			return err
		}
		client = master
	}
	sub := client.Subscribe(ctx)           // to no channel yet
	closeSub := func() { _ = sub.Close() } // the connection is closed in any case
	defer closeSub()
	defer context.AfterFunc(ctx, closeSub)()
	subscribe := sub.Subscribe
	if sharded {
		subscribe = sub.SSubscribe
	}
	err := subscribe(ctx, channel)
	for pinged := false; err == nil; {
		var received any
		received, err = sub.ReceiveTimeout(ctx, silenceTimeout)
		isSilent := errors.Is(err, os.ErrDeadlineExceeded)
		switch {
		case err == nil:
			pinged, err = false, onReceive(received)
		case isSilent && !pinged:
			pinged, err = true, sub.Ping(ctx)
		case isSilent:
			err = fmt.Errorf("the server was silent for %v", silenceTimeout)
		}
	}
	return err
}

// Masters implements [redislock.Conn].
func (c *conn) Masters(ctx context.Context) ([]redislock.Node, error) {
	if c.cluster == nil {
		return []redislock.Node{node{c.client}}, nil
	}
	if c.clusterErr != nil {
		return nil, c.clusterErr
	}
	masters, err := callWithContext(ctx, func(ctx context.Context) ([]redislock.Node, error) {
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
	return masters, asReplyError(err)
}

// A node is one server.
type node struct{ client redis.UniversalClient }

// Do implements [redislock.Node].
func (n node) Do(ctx context.Context, command ...string) ([]string, error) {
	args := make([]any, len(command))
	for i, arg := range command {
		args[i] = arg
	}
	reply, err := callWithContext(ctx, func(ctx context.Context) (any, error) {
		cmd := &noRetryCmd{redis.NewCmd(ctx, args...)}
		_ = n.client.Process(ctx, cmd) // cmd has the error
		return cmd.Result()
	})
	if err == redis.Nil { //nolint:errorlint // an error of another kind may wrap it: that Sentinel knows no such master
		return nil, nil
	}
	return redislock.LinesOf(reply), asReplyError(err)
}
