package demo

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// A redisServer is one Redis server with the lock and the stock.
type redisServer struct {
	*redistest.Node
	director *Director

	text string // what lock returned last
}

// Redis returns the Redis server of the demo, without a lock and with a full stock.
func (s *Director) Redis() *redisServer {
	if s.redis == nil {
		s.observer.Starting("a Redis server")
		s.redis = &redisServer{Node: redistest.Single(s.t)}
	}
	r := s.redis
	r.director = s
	r.Must("FLUSHALL")
	r.Used()
	r.Must("SET", pattern.StockName, OpeningStock)
	s.shown, s.began = r.look(), time.Now() // what was before is no part of the story
	return r
}

// Client starts a client.
func (r *redisServer) Client(name string, p pattern.Name, ttl time.Duration, ahead ...time.Duration) *Client {
	s := pattern.Spec{Pattern: p, URLs: []string{r.URL()}, Client: name, TTL: ttl, Zero: r.director.began}
	for _, d := range ahead {
		s.Ahead += d
	}
	return r.director.start(s)
}

// AwaitExpiry waits until the key of the lock has expired.
func (r *redisServer) AwaitExpiry() {
	r.director.Await("the end of the TTL", func() bool {
		n, err := r.Do("EXISTS", pattern.LockKey)
		check("redis", err)
		return n == int64(0)
	})
	r.director.Say(serverLane, "the TTL is over")
}

// look returns the state of the lock, of the stock, and of its guard if it has one.
func (r *redisServer) look() []string {
	state := []string{r.lock(), fmt.Sprintf("%s = %d", pattern.StockName, r.stock())}
	if token, err := r.Do("HGET", pattern.GuardKey, "token"); err == nil && token != nil {
		state = append(state, fmt.Sprintf("%s = token %v", pattern.GuardKey, token))
	}
	return state
}

// lock describes the lock. It does not count down the TTL, which would be news each time.
func (r *redisServer) lock() string {
	holder, err1 := r.Do("GET", pattern.LockKey)
	left, err2 := r.Do("PTTL", pattern.LockKey)
	if err1 != nil || err2 != nil || holder == nil {
		r.text = pattern.LockKey + " is free"
		return r.text
	}
	client := fmt.Sprint(holder)
	var grant struct{ Label string }
	if json.Unmarshal([]byte(client), &grant) == nil && grant.Label != "" { // of snib
		client = grant.Label
	}
	text := fmt.Sprintf("%s = %s, ", pattern.LockKey, client)
	millis, _ := left.(int64)
	switch endless := millis < 0; {
	case endless:
		r.text = text + "no expiry"
	case !strings.HasPrefix(r.text, text+"expires"):
		r.text = text + "expires in " + shortly(time.Duration(millis)*time.Millisecond)
	}
	return r.text
}

func (r *redisServer) stock() int {
	text, err := r.Do("GET", pattern.StockName)
	if err != nil || text == nil {
		return 0
	}
	n, _ := strconv.Atoi(fmt.Sprint(text))
	return n
}
