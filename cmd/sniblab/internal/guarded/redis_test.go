package guarded

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/redislock/redisfence"
)

func TestRedis(t *testing.T) {
	ctx, client := t.Context(), openRedis(t)
	g := redisfence.Guard{Client: client, Key: "{account/42}:fence"}
	const key = "{account/42}:balance"
	claim := func(token uint64, owner string) *redisfence.Handle {
		t.Helper()
		h, err := g.Open(ctx, hold{"account/42", token, owner})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	old := claim(9, "old")
	if m, err := old.Do(ctx, "GET", key); err != nil || !m.IsNil() {
		t.Errorf("GET of nothing = %v, %v, want nil and no error", m, err)
	}
	for range 2 {
		if _, err := old.Do(ctx, "SET", key, "1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.Open(ctx, hold{"account/42", 9, "another"}); !errors.Is(err, fence.ErrConflict) {
		t.Errorf("Open with the same token = %v, want ErrConflict", err)
	}
	claim(10, "later") // more digits, but less as text
	var refused *fence.RefusedError
	if _, err := old.Do(ctx, "SET", key, "2"); !errors.Is(err, fence.ErrStale) || !errors.As(err, &refused) || refused.Last != mark(t, 10, "later") {
		t.Errorf("SET of an old hold = %v, want ErrStale with the last mark", err)
	}
	top := claim(math.MaxInt64-1, "great") // Lua's numbers can't distinguish these
	if _, err := g.Open(ctx, hold{"account/42", math.MaxInt64 - 2, "less"}); !errors.Is(err, fence.ErrStale) {
		t.Errorf("Open of a hold with the token before = %v, want ErrStale", err)
	}
	if n, err := answerInt(top.Do(ctx, "INCRBY", key, "41")); err != nil || n != 42 {
		t.Errorf("INCRBY = %d, %v, want 42: the stale SET is not to be seen", n, err)
	}
	sum, err := answerInt(top.Eval(ctx, "return redis.call('GET', KEYS[1]) + ARGV[1]", []string{key}, []string{"8"}))
	if err != nil || sum != 50 {
		t.Errorf("Eval = %d, %v, want 50", sum, err)
	}
	if _, err = top.Do(ctx, "LPUSH", key, "x"); err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("LPUSH to a string = %v, want Redis's own error", err)
	}
	if _, err = g.Open(ctx, hold{"account/43", 1, "o"}); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), `"account/42"`) {
		t.Errorf("Open under another lock = %v, want ErrInvalid, and the lock that guards the data", err)
	}
	if _, err = (redisfence.Guard{Client: client}).Open(ctx, hold{"a", 1, "o"}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Open without a key = %v, want ErrInvalid", err)
	}
}

func answerInt(m rueidis.RedisMessage, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return m.AsInt64()
}
