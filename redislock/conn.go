package redislock

import (
	"context"
	"crypto/sha1" //nolint:gosec // the digest by which Redis knows a script; nothing rests on its strength
	"encoding/hex"
	"errors"
	"strings"
)

// A Conn is what the driver needs of a client of Redis. [New] and [Open] make one of rueidis; package redislock/goredis makes one of go-redis.
// It is safe for concurrent use.
//
// A Conn repeats a call only if the server has refused it unseen, as with MOVED or NOSCRIPT, and leaves it to the driver to ask again
// when an answer is lost: only the driver knows that its scripts bear it.
type Conn interface {
	// Eval runs scripts, in one pipeline for each server, and returns as many replies. All keys of a call lie in one slot; calls
	// for one slot run in order. It should return when ctx is done. It keeps nothing of calls.
	Eval(ctx context.Context, calls ...Call) []Reply

	// Subscribe listens to a channel until ctx is done or the connection is lost, and says why. It calls ready once the server has
	// confirmed the subscription, and message with each payload, in order and not at the same time. Sharded asks for
	// SSUBSCRIBE.
	Subscribe(ctx context.Context, channel string, sharded bool, ready func(), message func(payload string)) error

	// Masters returns the servers that may be written to: one, or each of a Cluster's.
	Masters(ctx context.Context) ([]Node, error)

	// IsCluster reports whether the client speaks to a Cluster.
	IsCluster() bool

	// Close frees what belongs to the Conn, and not a client that it was made from.
	Close()
}

// A Node is one server.
type Node interface {
	// Do sends one command and returns the reply as string, int64, nil, []any of these, or map[string]any.
	Do(ctx context.Context, command ...string) (any, error)
}

// A Call is one run of a script.
type Call struct {
	Script     *Script
	Keys, Args []string
}

// A Reply is what a run of a script returned: an array of strings.
type Reply struct {
	Lines []string
	Err   error
}

// A Script is Lua that runs in Redis.
type Script struct {
	Text string
	SHA1 string // in hexadecimal, for EVALSHA
}

func newScript(text string) *Script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return &Script{Text: text, SHA1: hex.EncodeToString(sum[:])}
}

// refusals are the errors with which a server says that it could not do anything for the moment.
var refusals = [...]string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "BUSY", "MOVED", "ASK", "UNBLOCKED", "NOSCRIPT",
}

// refusal returns the code of an error reply that is a passing one, or "". Before Redis 7 it stands within the text of a script's error.
func refusal(text string) string {
	for _, code := range refusals {
		if strings.HasPrefix(text, code+" ") || text == code || strings.Contains(text, "-"+code+" ") {
			return code
		}
	}
	return ""
}

// A ReplyError is an error that the server answered. What a [Conn] returns of other types means that there was no answer.
type ReplyError struct{ Text string }

func (e *ReplyError) Error() string { return e.Text }

// isTransient reports whether asking again may help: the call was not answered, or the server was not ready.
func isTransient(err error) bool {
	var answered *ReplyError
	return !errors.As(err, &answered) || refusal(answered.Text) != ""
}
