package redislock

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// foreignHolds returns the holds that a foreign key shows, and whether they share the lock.
func (s snapshot) foreignHolds(key string) (holds []driver.Holding, shared bool) {
	switch s.Type {
	case "string":
		value := string(s.Value)
		return []driver.Holding{{ID: value, Left: s.left(), Foreign: describeValue(key, value)}}, false
	case "hash":
		if holds, mode := redissonHolds(s.Fields, s.left()); len(holds) > 0 {
			return holds, mode == "read"
		}
	}
	return []driver.Holding{{Left: s.left(), Foreign: rediskit.DescribeUnknown(s.Type)}}, false
}

// describeValue returns who may have written a value into the key of a lock, or "". It takes the
// key for a lock.
func describeValue(key, value string) string {
	if library := libraryOf(key, value, true); library != "" {
		return library
	}
	if end, ok := endIn(value); ok {
		return "a client of SETNX and GETSET, until " + end.UTC().Format(time.RFC3339)
	}
	if isCount(value) {
		return "a client of SET NX, or a semaphore of Redisson (RSemaphore), which keeps a number"
	}
	return ""
}

// endIn returns the end that a client of SETNX and GETSET writes as a lock's value: a Unix time in
// seconds, with or without a fraction, or in milliseconds.
func endIn(value string) (time.Time, bool) {
	const oldest, latest = 1e9, 1e10 // the years 2001 and 2286, in seconds
	switch n, err := strconv.ParseFloat(value, 64); {
	case err != nil:
	case oldest <= n && n < latest:
		return time.UnixMilli(int64(n * 1000)), true
	case oldest*1000 <= n && n < latest*1000 && n == math.Trunc(n):
		return time.UnixMilli(int64(n)), true
	}
	return time.Time{}, false
}

// isCount reports whether a value is a number such as INCR keeps.
func isCount(value string) bool {
	if value == "" || value[len(value)-1] < '0' || value[len(value)-1] > '9' {
		return false // without the memory that an error of ParseInt takes
	}
	_, err := strconv.ParseInt(value, 10, 64)
	return err == nil
}

// keyPrefixes are the key prefixes by which libraries are known.
var keyPrefixes = [...]struct{ prefix, library string }{
	{"redlock:", "pottery"}, {"job-lock:", "ShedLock"}, {"spring-integration", "Spring"},
}

// pattern returns a regular expression that is compiled when it is first needed: most programs look
// at no foreign key.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// valueFormats are the formats of the values that libraries write into a lock's key.
var valueFormats = [...]struct {
	value   func() *regexp.Regexp
	library string
}{
	{pattern(`^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$`),
		"a client of SET NX with a UUID, such as redlock-rb or Spring"},
	{pattern(`^[0-9a-f]{32}$`), "a client of SET NX with 16 bytes in hex, such as redis-py or node-redlock"},
	{pattern(`^[0-9a-f]{40}$`), "a client of SET NX with 20 bytes in hex, such as redlock-py"},
	{pattern(`^[A-Za-z0-9+/]{22}==$`), "redsync"},
	{pattern(`^[A-Za-z0-9_-]{22}$`), "bsm/redislock"},
	{pattern(`^[A-Za-z0-9.-]+_\d+_[0-9a-f]{32}$`), "madelson's DistributedLock"},
	{pattern(`^ADDED:\d{4}-\d\d-\d\dT[0-9:.]+Z?@\S+$`), "ShedLock"},
}

// lockWord matches keys whose name says that they are locks.
var lockWord = pattern(`(?i)(^|[^a-z])(r?lock|locks|locked|mutex|semaphore)($|[^a-z])`)

// libraryOf returns the library whose format the value of a string has, or "" if it has none, or if
// the key does not confirm it. AssumeLock means that the caller takes the key for a lock.
func libraryOf(key, value string, assumeLock bool) string {
	if !utf8.ValidString(value) {
		return ""
	}
	for _, f := range valueFormats {
		if !f.value().MatchString(value) {
			continue
		}
		for _, p := range keyPrefixes {
			if strings.HasPrefix(key, p.prefix) {
				return p.library
			}
		}
		if assumeLock || lockWord().MatchString(key) {
			return f.library
		}
		return ""
	}
	return ""
}

// redissonOwner matches the hash field of a holder: the UUID of its client and the number of
// its thread, for a writer with a suffix.
var redissonOwner = pattern(`^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}:\d+(:write)?$`)

// redissonHolds returns the holds in the fields of a hash, which alternate with their values, and
// the mode of a read-write lock. It returns none if the hash is no lock of Redisson. Left is that
// of the hash: Redisson ends holds that are shared one by one, but keeps their ends elsewhere.
func redissonHolds(fields []string, left time.Duration) (holds []driver.Holding, mode string) {
	for i := 0; i+1 < len(fields); i += 2 {
		switch field, value := fields[i], fields[i+1]; {
		case redissonOwner().MatchString(field):
			count, err := strconv.Atoi(value)
			if err != nil {
				return nil, ""
			}
			holds = append(holds, driver.Holding{ID: field, Left: left, Foreign: "Redisson", Count: count})
		case field == "mode" && (value == "read" || value == "write"):
			mode = value
		default:
			return nil, ""
		}
	}
	for i := range holds {
		switch {
		case strings.HasSuffix(holds[i].ID, ":write"):
			holds[i].Foreign = "Redisson, as a writer"
		case mode != "":
			holds[i].Foreign = "Redisson, as a reader"
		}
	}
	slices.SortFunc(holds, func(a, b driver.Holding) int { // a writer may read, too, and comes first
		return cmp.Or(-cmp.Compare(a.Foreign, b.Foreign), cmp.Compare(a.ID, b.ID))
	})
	return holds, mode
}

// redissonHash returns the kind of Redisson lock whose fields these are, or "".
func redissonHash(fields []string) string {
	switch holds, mode := redissonHolds(fields, 0); {
	case len(holds) == 0:
		return ""
	case mode != "":
		return "Redisson, a read-write lock"
	}
	return "Redisson"
}
