package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/redislock/rediskit"
)

// A rueidisConn is a Conn on a rueidis client.
type rueidisConn struct {
	client rueidis.Client
	own    bool // Open made the client
}

func (c *rueidisConn) IsCluster() bool { return c.client.Mode() == rueidis.ClientModeCluster }

func (c *rueidisConn) IsSentinel() bool { return c.client.Mode() == rueidis.ClientModeSentinel }

func (c *rueidisConn) Close() {
	if c.own {
		c.client.Close()
	}
}

// Eval implements [Conn].
func (c *rueidisConn) Eval(ctx context.Context, calls ...Call) []Reply {
	replies := make([]Reply, len(calls))
	var few [2]rueidis.RedisResult // enough for most calls
	results := c.send(ctx, few[:0], calls, false)
	for i := 0; i < len(calls); i++ {
		e, refused := rueidis.IsRedisErr(results[i].Error())
		if calls[i].Script == nil || !refused || !e.IsNoScript() {
			replies[i] = replyOf(results[i])
			continue
		}
		end := i + 1
		for end < len(calls) && calls[end].Script == nil {
			end++
		}
		for _, r := range c.send(ctx, nil, calls[i:end], true) {
			replies[i] = replyOf(r)
			i++
		}
		i--
	}
	if slices.ContainsFunc(replies, func(r Reply) bool { return codeOf(r.Err) == "READONLY" }) {
		c.leaveReplica(ctx, calls[0].Keys)
	}
	return replies
}

// leaveReplica closes the connection on which a call was refused by a replica. The address may lead
// to a new master by now, while a connection to the old one, which was demoted, stays open for
// ever. Redis ignores the argument of QUIT; the client chooses the connection by it, as it did for
// the call. It notices only with another command that the connection is closed. The clients of a
// Cluster are told of the new master.
func (c *rueidisConn) leaveReplica(ctx context.Context, keys []string) {
	if c.client.Mode() == rueidis.ClientModeCluster || len(keys) == 0 {
		return
	}
	for _, command := range []string{"QUIT", "PING"} {
		_ = c.client.Do(ctx, c.client.B().Arbitrary(command).Keys(keys[0]).Build()).Error()
	}
}

// send makes calls, and appends their results to results. With text set, the scripts go with their
// text, for a server that does not know them.
func (c *rueidisConn) send(
	ctx context.Context, results []rueidis.RedisResult, calls []Call, text bool,
) []rueidis.RedisResult {
	if len(calls) == 1 {
		return append(results, c.client.Do(ctx, c.command(calls[0], text)))
	}
	commands := make(rueidis.Commands, len(calls))
	for i, call := range calls {
		commands[i] = c.command(call, text)
	}
	return append(results, c.client.DoMulti(ctx, commands...)...)
}

func (c *rueidisConn) command(call Call, text bool) rueidis.Completed {
	switch {
	case call.Script == nil:
		return c.client.B().Arbitrary(call.Command).Keys(call.Keys...).Args(call.Args...).Build()
	case text:
		return c.client.B().Eval().Script(call.Script.Text()).Numkeys(int64(len(call.Keys))).Key(call.Keys...).Arg(
			call.Args...).Build()
	}
	return c.client.B().Evalsha().Sha1(call.Script.SHA1()).Numkeys(int64(len(call.Keys))).Key(call.Keys...).Arg(
		call.Args...).Build()
}

// replyOf reads the reply of a script or of a command.
func replyOf(r rueidis.RedisResult) Reply {
	all, err := r.ToAny()
	if err != nil && !rueidis.IsRedisNil(err) {
		return Reply{Err: asReplyError(err)}
	}
	return Reply{Lines: LinesOf(all)}
}

// asReplyError converts an error that the server replied with into a [ReplyError].
func asReplyError(err error) error {
	if e, ok := rueidis.IsRedisErr(err); ok {
		return &ReplyError{Text: strings.TrimSpace(e.Error())}
	}
	return err
}

// Subscribe implements [Conn]. On a single server the subscription has its own connection: on
// the connection for commands it would cost each command a switch between goroutines.
//
// No subscription ends by UNSUBSCRIBE. The client sends PING after that, and panics if the server
// answers it with an error, as one does whose disk is full. The connection is closed instead, and
// does not go back to the pool, which unsubscribes, too. That of a Cluster is shared, and stays
// subscribed: a channel of each slot at most, on which nobody is told anything then.
func (c *rueidisConn) Subscribe(
	ctx context.Context, channel string, sharded bool, ready func(), message func(string),
) error {
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if strings.HasSuffix(s.Kind, "subscribe") && !strings.HasSuffix(s.Kind, "unsubscribe") {
			ready()
		}
	})
	command := c.client.B().Subscribe().Channel(channel).Build()
	if sharded {
		command = c.client.B().Ssubscribe().Channel(channel).Build()
	}
	receive := c.client.Receive
	if !c.IsCluster() {
		dedicated, _ := c.client.Dedicate()
		defer dedicated.Close()
		receive = dedicated.Receive
	}
	err := receive(ctx, command, func(m rueidis.PubSubMessage) { message(m.Message) })
	if err == nil {
		err = errors.New("the server ended the subscription")
	}
	return asReplyError(err)
}

// Masters implements [Conn]. It returns an error unless the client knows and reaches all
// masters.
func (c *rueidisConn) Masters(ctx context.Context) ([]Node, error) {
	if !c.IsCluster() {
		return []Node{rueidisNode{c.client}}, nil
	}
	var masters []Node
	var failed error
	for addr, client := range c.client.Nodes() {
		n := rueidisNode{client}
		isMaster, err := isMaster(ctx, n)
		switch {
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("%s: %w", addr, err))
		case isMaster:
			masters = append(masters, n)
		}
	}
	if len(masters) == 0 {
		return nil, cmp.Or(failed, errors.New("the client knows no master of the Cluster"))
	}
	all, err := mastersKnownTo(ctx, masters[0])
	switch {
	case err != nil:
		return nil, errors.Join(failed, err)
	case len(masters) < all:
		return nil, errors.Join(failed, fmt.Errorf("the client reaches %d of the Cluster's %d masters", len(masters), all))
	}
	return masters, nil
}

// isMaster asks a node for its role. A node that is down may hang.
func isMaster(ctx context.Context, n Node) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	role, err := n.Do(ctx, "ROLE")
	return len(role) > 0 && role[0] == "master", err
}

// mastersKnownTo returns how many masters have slots according to a node.
func mastersKnownTo(ctx context.Context, n Node) (int, error) {
	reply, err := n.Do(ctx, "CLUSTER", "INFO")
	if err != nil {
		return 0, fmt.Errorf("CLUSTER INFO: %w", err)
	}
	size, err := strconv.Atoi(rediskit.ParseInfo(strings.Join(reply, ""))["cluster_size"])
	if err != nil {
		return 0, fmt.Errorf("CLUSTER INFO has no cluster_size: %w", err)
	}
	return size, nil
}

// explain adds the likely cause to a connection error.
func explain(err error, o rueidis.ClientOption) error {
	var timeout net.Error
	switch {
	case strings.Contains(err.Error(), "unknown message type"):
		return fmt.Errorf("the server is not Redis: %w", err)
	case rueidis.IsRedisNil(err) || strings.Contains(err.Error(), "No such master"):
		return fmt.Errorf("the Sentinels know no master %q: %w", o.Sentinel.MasterSet, asReplyError(err))
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout():
		if o.TLSConfig != nil {
			return fmt.Errorf("no answer within %v; does the server speak TLS? %w", exceededTimeout(err, o), err)
		}
		return fmt.Errorf("no answer within %v: %w", exceededTimeout(err, o), err)
	case o.TLSConfig == nil && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return fmt.Errorf("the server closed the connection; does it require TLS? %w", err)
	}
	return asReplyError(err)
}

// exceededTimeout returns the timeout that expired. For a read on an established connection that
// may be the shorter one of the two.
func exceededTimeout(err error, o rueidis.ClientOption) time.Duration {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "read" {
		return min(o.Dialer.Timeout, o.ConnWriteTimeout)
	}
	return o.Dialer.Timeout
}

type rueidisNode struct{ client rueidis.Client }

func (n rueidisNode) Do(ctx context.Context, command ...string) ([]string, error) {
	r := replyOf(n.client.Do(ctx, n.client.B().Arbitrary(command...).Build()))
	return r.Lines, r.Err
}
