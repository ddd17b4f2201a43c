package redislock

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Stranger is something that another lock library left in Redis and that nothing will ever end.
type Stranger struct {
	Key     string
	Library string // whose format it is, in words
	Problem string // a clause: "it has no end"

	// Value is what to give [Driver.Break] as owner, with the token 0, to delete the key; empty if it is no string, which Break does
	// not touch.
	Value string
}

// Strangers calls yield for what other lock libraries left behind under keys that begin with prefix, until that returns false:
//
//   - locks of Redisson, hashes and queues, and of clients of SET NX, in the formats of redis-py, redsync, bsm/redislock, node-redlock,
//     redlock-rb, aioredlock, madelson's DistributedLock, pottery, ShedLock and Spring, that have no end;
//   - queues of Redisson's fair lock that are blocked by a waiter whose time is over.
//
// A string is taken for a lock if its value has the form of one of theirs, and its key says so: by a prefix of theirs, by the word lock,
// mutex or semaphore in it, or because a prefix was given. What has an end ends by itself, and is not shown.
//
// It writes nothing, and scans the servers step by step. Memory is that of one step.
func (d *Driver) Strangers(ctx context.Context, prefix string, yield func(Stranger) bool) error {
	return d.scan(ctx, escapeGlob(prefix)+"*", func(m Node, keys []string) (bool, error) {
		var queues, others []string
		for _, key := range keys {
			switch {
			case strings.HasPrefix(key, "snib."):
			case strings.HasPrefix(key, redissonQueue):
				queues = append(queues, key)
			default:
				others = append(others, key)
			}
		}
		found, err := d.endless(ctx, others, prefix != "")
		for _, key := range queues {
			if err != nil {
				return false, err
			}
			var s *Stranger
			if s, err = blocked(ctx, m, key); s != nil {
				found = append(found, *s)
			}
		}
		for _, s := range found {
			if err == nil && !yield(s) {
				return false, nil
			}
		}
		return err == nil, err
	})
}

// endlessScript describes those of its keys that have no end and may be locks. It writes nothing.
const endlessScript = `
local answers = {}
for i = 1, #KEYS do
  local key, seen = KEYS[i], {}
  if redis.call('PTTL', key) == -1 then
    seen.type = redis.call('TYPE', key).ok
    if seen.type == 'string' and redis.call('STRLEN', key) <= 512 then
      seen.value = redis.call('GET', key)
    elseif seen.type == 'hash' and redis.call('HLEN', key) <= 64 then
      seen.fields = redis.call('HGETALL', key)
    end
  end
  answers[i] = cjson.encode(seen)
end
return answers
`

// endless returns those of the keys that are locks without an end. Sought means that the user thinks that they are locks.
func (d *Driver) endless(ctx context.Context, keys []string, sought bool) (found []Stranger, err error) {
	for batch := range d.batches(keys) {
		r := d.ask(ctx, Call{Script: d.finder, Keys: batch})[0]
		if r.Err != nil {
			return nil, r.Err
		}
		if len(r.Lines) != len(batch) {
			return nil, fmt.Errorf("the script gave %d answers for %d keys", len(r.Lines), len(batch))
		}
		for i, line := range r.Lines {
			var e endlessKey
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				continue // a value that is no text is none of theirs
			}
			e.key = batch[i]
			if s := e.stranger(sought); s != nil && !d.owns(ctx, e.key) {
				found = append(found, *s)
			}
		}
	}
	return found, nil
}

// owns reports whether a lock of ours has that key: it can be without an end if somebody has taken it away.
func (d *Driver) owns(ctx context.Context, key string) bool {
	st, err := d.Status(ctx, key)
	return err == nil && len(st.Holders) > 0 && st.Holders[0].Token != 0
}

// An endlessKey is what endlessScript says of a key.
type endlessKey struct {
	key    string
	Type   string   `json:"type"`
	Value  string   `json:"value"`
	Fields []string `json:"fields"` // and values, in turn
}

// stranger tells whose lock a key is, or nil.
func (e endlessKey) stranger(sought bool) *Stranger {
	s := &Stranger{Key: e.key, Problem: "it has no end"}
	switch e.Type {
	case "string":
		s.Library, s.Value = libraryOf(e.key, e.Value, sought), e.Value
	case "hash":
		s.Library = redissonHash(e.Fields)
	}
	if s.Library == "" {
		return nil
	}
	return s
}

// prefixes of keys, and whose they are.
var prefixes = [...]struct{ prefix, library string }{
	{"redlock:", "pottery"}, {"job-lock:", "ShedLock"}, {"spring-integration", "Spring"},
}

// forms are what libraries write into a lock's key to know it as theirs.
var forms = [...]struct {
	value   *regexp.Regexp
	library string
}{
	{regexp.MustCompile(`^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$`), "a client of SET NX with a UUID, such as redlock-rb or Spring"},
	{regexp.MustCompile(`^[0-9a-f]{32}$`), "a client of SET NX with 16 bytes in hex, such as redis-py or node-redlock"},
	{regexp.MustCompile(`^[0-9a-f]{40}$`), "a client of SET NX with 20 bytes in hex, such as redlock-py"},
	{regexp.MustCompile(`^[A-Za-z0-9+/]{22}==$`), "redsync"},
	{regexp.MustCompile(`^[A-Za-z0-9_-]{22}$`), "bsm/redislock"},
	{regexp.MustCompile(`^[A-Za-z0-9.-]+_\d+_[0-9a-f]{32}$`), "madelson's DistributedLock"},
	{regexp.MustCompile(`^ADDED:\d{4}-\d\d-\d\dT[0-9:.]+Z?@\S+$`), "ShedLock"},
}

// namesLock matches keys that say what they are for.
var namesLock = regexp.MustCompile(`(?i)(^|[^a-z])(r?lock|locks|locked|mutex|semaphore)($|[^a-z])`)

func libraryOf(key, value string, sought bool) string {
	if !utf8.ValidString(value) {
		return ""
	}
	for _, f := range forms {
		if !f.value.MatchString(value) {
			continue
		}
		for _, p := range prefixes {
			if strings.HasPrefix(key, p.prefix) {
				return p.library
			}
		}
		if sought || namesLock.MatchString(key) {
			return f.library
		}
		return ""
	}
	return ""
}

// redissonOwner is the field of a holder: the UUID of its client and the number of its thread, of a writer with a suffix.
var redissonOwner = regexp.MustCompile(`^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}:\d+(:write)?$`)

// redissonHash tells whether the fields of a hash are those of one of Redisson's locks.
func redissonHash(fields []string) string {
	holders, mode := 0, ""
	for i := 0; i+1 < len(fields); i += 2 {
		switch field, value := fields[i], fields[i+1]; {
		case redissonOwner.MatchString(field):
			if _, err := strconv.Atoi(value); err != nil {
				return ""
			}
			holders++
		case field == "mode" && (value == "read" || value == "write"):
			mode = value
		default:
			return ""
		}
	}
	switch {
	case holders == 0:
		return ""
	case mode != "":
		return "Redisson, a read-write lock"
	}
	return "Redisson"
}

// Redisson keeps the queue of a fair lock, and until when each waiter waits by its own clock, in milliseconds, under these names.
const (
	redissonQueue   = "redisson_lock_queue:"
	redissonTimeout = "redisson_lock_timeout:"
)

// lateness is for how long the time of a waiter must be over: its clock may be another than the server's.
const lateness = 10 * time.Second

// blocked tells whether the first in a queue of Redisson is one that has gone. Whoever asks for the lock removes it; so it is there for
// long only if nobody does, or the lock's clients disagree about the time.
func blocked(ctx context.Context, m Node, key string) (*Stranger, error) {
	head, err := m.Do(ctx, "LINDEX", key, "0")
	owner, ok := head.(string)
	if err != nil || !ok {
		return nil, err
	}
	score, err := m.Do(ctx, "ZSCORE", redissonTimeout+strings.TrimPrefix(key, redissonQueue), owner)
	if err != nil {
		return nil, err
	}
	until, ok := asFloat(score)
	if !ok {
		return &Stranger{Key: key, Library: "Redisson, a fair lock", Problem: "the first in the queue has no time until which it waits"}, nil
	}
	reply, err := m.Do(ctx, "TIME")
	now, _ := reply.([]any)
	if err != nil || len(now) == 0 {
		return nil, err
	}
	seconds, ok := asFloat(now[0])
	over := time.Duration(seconds*float64(time.Second) - until*float64(time.Millisecond))
	if !ok || over < lateness {
		return nil, nil //nolint:nilnil // it is not blocked
	}
	return &Stranger{
		Key: key, Library: "Redisson, a fair lock",
		Problem: fmt.Sprintf("the first in the queue was to be gone %v ago", over.Round(time.Second)),
	}, nil
}

// asFloat reads a number, which is text in RESP2.
func asFloat(v any) (float64, bool) {
	switch n := v.(type) {
	case float64:
		return n, true
	case int64:
		return float64(n), true
	case string:
		f, err := strconv.ParseFloat(n, 64)
		return f, err == nil
	}
	return 0, false
}
