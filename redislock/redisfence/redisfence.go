// Package redisfence checks fencing tokens in Redis, where the data is: in the script that
// reads or writes it. See package fence for the purpose of that. The lock may be in another
// Redis, or in another kind of store.
//
//	guard := redisfence.Guard{Client: client, Key: "{account/42}:fence"}
//	h, err := guard.Open(ctx, lock) // claims: read only after that
//	…
//	answer, err := h.Do(ctx, "GET", "{account/42}:balance")
//	balance, err := answer.AsInt64()
//	…
//	_, err = h.Do(ctx, "SET", "{account/42}:balance", strconv.FormatInt(balance-10, 10))
//
// The mark is a hash of its own, without an expiry. It is as durable as the data: Redis may
// lose either of them in a crash or by eviction. In a Cluster the mark and the data must lie in
// one slot.
package redisfence

import (
	"context"
	_ "embed" // for the scripts
	"errors"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
)

// A Guard guards keys in Redis by one lock.
type Guard struct {
	Client rueidis.Client
	Key    string // of the mark, a hash that belongs to the guard
}

// Open claims the data. If a later hold has claimed it, the error is a *[fence.RefusedError].
func (g Guard) Open(ctx context.Context, h fence.Hold) (*Handle, error) {
	m, err := fence.Of(h)
	if err != nil {
		return nil, err
	}
	handle, err := g.Write(m)
	if err != nil {
		return nil, err
	}
	if _, err = handle.run(ctx, claim, nil, nil); err != nil {
		return nil, err
	}
	return handle, nil
}

// Write returns a handle that has not claimed anything yet: the weaker form, for writes that do
// not depend on earlier reads. A mark that no hold has, such as one without a token, is a
// [driver.ErrInvalid].
func (g Guard) Write(m fence.Mark) (*Handle, error) {
	if g.Key == "" {
		return nil, driver.Invalidf("key of the mark: it is empty")
	}
	if _, err := fence.ParseHeader(m.Header()); err != nil {
		return nil, driver.Invalidf("mark: %w", err)
	}
	return &Handle{guard: g, mark: m}, nil
}

// A Handle is a hold's access to the data. Once a later hold has claimed the data, the methods
// neither read nor write it, and fail with a *[fence.RefusedError].
type Handle struct {
	guard Guard
	mark  fence.Mark
}

// Do runs a command whose first argument is its only key, such as GET, HSET or INCRBY. A nil
// answer is not an error.
func (h *Handle) Do(ctx context.Context, command, key string, args ...string) (rueidis.RedisMessage, error) {
	return h.run(ctx, do, []string{key}, append([]string{command}, args...))
}

// Eval runs the caller's Lua script, which gets keys and args as KEYS and ARGV. A nil answer is
// not an error.
func (h *Handle) Eval(ctx context.Context, script string, keys, args []string) (rueidis.RedisMessage, error) {
	return h.run(ctx, rueidis.NewLuaScript(admitScript+script), keys, args)
}

// run runs a script that begins with admitScript.
func (h *Handle) run(ctx context.Context, script *rueidis.Lua, keys, args []string) (rueidis.RedisMessage, error) {
	m := h.mark
	answer, err := script.Exec(ctx, h.guard.Client, append([]string{h.guard.Key}, keys...),
		append([]string{m.Lock, strconv.FormatUint(m.Token, 10), m.Owner}, args...)).ToMessage()
	if rueidis.IsRedisNil(err) {
		err = nil
	}
	return answer, h.explain(err)
}

// The scripts are Lua that runs in Redis. admitScript comes first in each request. It lets the hold
// in, or answers with an error. After it comes claimScript, doScript, or a script of the caller.
var (
	//go:embed script/admit.lua
	admitScript string
	//go:embed script/claim.lua
	claimScript string
	//go:embed script/do.lua
	doScript string

	claim = rueidis.NewLuaScript(admitScript + claimScript)
	do    = rueidis.NewLuaScript(admitScript + doScript)
)

// explain turns an error of admitScript into the error that it stands for.
func (h *Handle) explain(err error) error {
	var redisErr *rueidis.RedisError
	if !errors.As(err, &redisErr) {
		return err
	}
	text := redisErr.Error()
	if lock, found := strings.CutPrefix(text, "FENCEDBY "); found {
		return driver.Invalidf("lock: %s is guarded by the lock %q, not by %q", h.guard.Key, lock, h.mark.Lock)
	}
	rest, found := strings.CutPrefix(text, "FENCED ")
	number, owner, _ := strings.Cut(rest, " ")
	token, bad := strconv.ParseUint(number, 10, 63)
	if !found || bad != nil {
		return err
	}
	return &fence.RefusedError{Mark: h.mark, Last: fence.Mark{Lock: h.mark.Lock, Token: token, Owner: owner}}
}
