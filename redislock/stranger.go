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

	"github.com/sniblock/snib/redislock/redisadmin"
	"github.com/sniblock/snib/redislock/rediskit"
)

// Strangers implements [redisadmin.Admin].
func (d admin) Strangers(ctx context.Context, prefix string, yield func(redisadmin.Stranger) bool) error {
	return d.scan(ctx, rediskit.EscapeGlob(prefix)+"*", func(m Node, keys []string) (bool, error) {
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
			var s *redisadmin.Stranger
			if s, err = blockedQueue(ctx, m, key); s != nil {
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

// endless returns those of the keys that are locks without an end. AssumeLocks means that the
// caller has chosen a prefix, and so believes that the keys are locks.
func (d admin) endless(ctx context.Context, keys []string, assumeLocks bool) (found []redisadmin.Stranger, err error) {
	for batch := range d.batches(keys) {
		r := d.eval(ctx, Call{Script: endlessScript, Keys: batch})[0]
		if r.Err != nil {
			return nil, r.Err
		}
		if len(r.Lines) != len(batch) {
			return nil, fmt.Errorf("the script gave %d answers for %d keys", len(r.Lines), len(batch))
		}
		for i, line := range r.Lines {
			var e endlessKey
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				continue // no library writes a value that is not text
			}
			e.key = batch[i]
			if s := e.stranger(assumeLocks); s != nil && !d.isOwnLock(ctx, e.key) {
				found = append(found, *s)
			}
		}
	}
	return found, nil
}

// isOwnLock reports whether the key is that of a snib lock: it may have no end if somebody has
// removed it.
func (d admin) isOwnLock(ctx context.Context, key string) bool {
	st, err := d.Status(ctx, key)
	return err == nil && len(st.Holders) > 0 && st.Holders[0].Token != 0
}

// An endlessKey is what endlessScript reports about a key.
type endlessKey struct {
	key    string
	Type   string   `json:"type"`
	Value  string   `json:"value"`
	Fields []string `json:"fields"` // alternating with values
}

// stranger returns the Stranger that a key is, or nil.
func (e endlessKey) stranger(assumeLock bool) *redisadmin.Stranger {
	s := &redisadmin.Stranger{Key: e.key, Problem: "it has no end"}
	switch e.Type {
	case "string":
		s.Library, s.Value = libraryOf(e.key, e.Value, assumeLock), e.Value
	case "hash":
		s.Library = redissonHash(e.Fields)
	}
	if s.Library == "" {
		return nil
	}
	return s
}

// keyPrefixes are the key prefixes by which libraries are known.
var keyPrefixes = [...]struct{ prefix, library string }{
	{"redlock:", "pottery"}, {"job-lock:", "ShedLock"}, {"spring-integration", "Spring"},
}

// valueFormats are the formats of the values that libraries write into a lock's key.
var valueFormats = [...]struct {
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

// lockWord matches keys whose name says that they are locks.
var lockWord = regexp.MustCompile(`(?i)(^|[^a-z])(r?lock|locks|locked|mutex|semaphore)($|[^a-z])`)

func libraryOf(key, value string, assumeLock bool) string {
	if !utf8.ValidString(value) {
		return ""
	}
	for _, f := range valueFormats {
		if !f.value.MatchString(value) {
			continue
		}
		for _, p := range keyPrefixes {
			if strings.HasPrefix(key, p.prefix) {
				return p.library
			}
		}
		if assumeLock || lockWord.MatchString(key) {
			return f.library
		}
		return ""
	}
	return ""
}

// redissonOwner matches the hash field of a holder: the UUID of its client and the number of
// its thread, for a writer with a suffix.
var redissonOwner = regexp.MustCompile(`^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}:\d+(:write)?$`)

// redissonHash returns the kind of Redisson lock whose fields these are, or "".
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

// Redisson keeps the queue of a fair lock, and the time until which each waiter waits, in
// milliseconds of the waiter's clock, under these prefixes.
const (
	redissonQueue   = "redisson_lock_queue:"
	redissonTimeout = "redisson_lock_timeout:"
)

// overdueMin is how long a waiter's time must be over: its clock may differ from the server's.
const overdueMin = 10 * time.Second

// blockedQueue returns a Stranger if the head of a Redisson queue is a waiter that is gone.
// Redisson clients remove such a waiter when they next try to lock, so one remains for long
// only if no client tries, or if the clients' clocks differ.
func blockedQueue(ctx context.Context, m Node, key string) (*redisadmin.Stranger, error) {
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
		return &redisadmin.Stranger{Key: key, Library: "Redisson, a fair lock", Problem: "the first in the queue has no time until which it waits"}, nil
	}
	reply, err := m.Do(ctx, "TIME")
	now, _ := reply.([]any)
	if err != nil || len(now) == 0 {
		return nil, err
	}
	seconds, ok := asFloat(now[0])
	over := time.Duration(seconds*float64(time.Second) - until*float64(time.Millisecond))
	if !ok || over < overdueMin {
		return nil, nil //nolint:nilnil // it is not blocked
	}
	return &redisadmin.Stranger{
		Key: key, Library: "Redisson, a fair lock",
		Problem: fmt.Sprintf("the first in the queue was to be gone %v ago", over.Round(time.Second)),
	}, nil
}

// asFloat reads a number, which RESP2 sends as text.
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
