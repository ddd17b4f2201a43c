package metriclabel

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/sniblock/snib/driver"
)

// Other is the class of the names that have no class of their own.
const Other = "other"

// DefaultMax is the default for the greatest number of classes.
const DefaultMax = 200

// Class is the default classification: it returns the part of a lock's name before the first
// separator that is followed by a digit.
func Class(name string) string {
	for i := 0; i+1 < len(name); i++ {
		if next := name[i+1]; '0' <= next && next <= '9' && isSeparator(name[i]) {
			return name[:i]
		}
	}
	return name
}

// isSeparator reports whether b is an ASCII space or punctuation character.
func isSeparator(b byte) bool {
	switch {
	case b < ' ', b > '~', '0' <= b && b <= '9', 'A' <= b && b <= 'Z', 'a' <= b && b <= 'z':
		return false
	}
	return true
}

// maxLength bounds how much of a text becomes a label value, in bytes.
const maxLength = 128

// Clean makes text a valid label value: Prometheus requires UTF-8, and treats an
// empty value as a missing label.
func Clean(text string) string {
	// This also replaces a character that was cut in two.
	text = strings.ToValidUTF8(text[:min(len(text), maxLength)], string(utf8.RuneError))
	if text == "" {
		return Other
	}
	return text
}

// Classes finds the counts for a name, which are those of its class. It bounds the number of
// classes; further ones share the counts of [Other].
//
// Each event of a hold looks up a name, so Classes caches the counts of some names, in a table of
// fixed size that is indexed by the hash of the name. This bounds both the memory and the number
// of calls of a costly classification function.
//
// A class may have several counts, in shards. A name always uses the same one, so processors that
// work with different names don't wait for each other. The sums are those of the class.
type Classes[Counts any] struct {
	classOf   func(name string) string
	newCounts func(class string) *Counts
	limit     int
	shards    int

	seed   maphash.Seed
	known  [1 << 10]atomic.Pointer[knownName[Counts]]
	folded atomic.Uint64

	mu      sync.Mutex
	byClass map[string]*shardedClass[Counts]
	other   shardedClass[Counts]
}

// A knownName is a name in the cache, with the counts of its class.
type knownName[Counts any] struct {
	name   string
	counts *Counts
}

// A shardedClass contains the counts of a class. They are nil until they are needed.
type shardedClass[Counts any] struct {
	name   string
	shards []*Counts
}

// NewClasses returns Classes for the classes that classOf assigns to names. A nil classOf is
// [Class], and a limit of 0 is [DefaultMax]. newCounts returns new counts for a class. It is called
// at most once for each of the shards of a class, of which there must be at least one. A negative
// limit is an [snib.ErrInvalid].
func NewClasses[Counts any](classOf func(name string) string, limit, shards int,
	newCounts func(class string) *Counts) (*Classes[Counts], error) {
	if classOf == nil {
		classOf = Class
	}
	switch {
	case limit < 0:
		return nil, driver.Invalidf("MaxResources: %d is negative", limit)
	case limit == 0:
		limit = DefaultMax
	}
	return &Classes[Counts]{
		classOf: classOf, newCounts: newCounts, limit: limit, shards: shards, seed: maphash.MakeSeed(),
		byClass: map[string]*shardedClass[Counts]{}, other: shardedClass[Counts]{name: Other,
			shards: make([]*Counts, shards)},
	}, nil
}

// Name returns the counts for the class of a name. A name that no lock can have, because
// [driver.CheckName] refuses it, is counted under [Other]: it takes up neither memory nor a class.
func (c *Classes[Counts]) Name(name string) *Counts {
	hash := maphash.String(c.seed, name)
	slot := &c.known[hash%uint64(len(c.known))]
	if k := slot.Load(); k != nil && k.name == name {
		return k.counts
	}
	if driver.CheckName(name) != nil {
		return c.Class(Other)
	}
	counts := c.counts(c.classOf(name), int(hash%uint64(c.shards)))
	slot.Store(&knownName[Counts]{name, counts})
	return counts
}

// Of returns the class of a name, which need not be one of those with counts.
func (c *Classes[Counts]) Of(name string) string { return Clean(c.classOf(name)) }

// Most returns the greatest number of classes, not counting [Other].
func (c *Classes[Counts]) Most() int { return c.limit }

// Class returns the first counts of a class, or those of [Other] if there are too many classes.
func (c *Classes[Counts]) Class(class string) *Counts { return c.counts(class, 0) }

// counts returns the counts of a class, or of [Other] if there are too many classes, in a shard.
func (c *Classes[Counts]) counts(class string, shard int) *Counts {
	class = Clean(class)
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.byClass[class]
	switch {
	case known != nil:
	case class != Other && len(c.byClass) < c.limit:
		class = strings.Clone(class) // do not keep the whole name in memory
		known = &shardedClass[Counts]{class, make([]*Counts, c.shards)}
		c.byClass[class] = known
	default:
		known = &c.other
		if class != Other {
			c.folded.Add(1)
		}
	}
	if known.shards[shard] == nil {
		known.shards[shard] = c.newCounts(known.name)
	}
	return known.shards[shard]
}

// Folded returns how often a name was counted under [Other] because there were too many classes.
func (c *Classes[Counts]) Folded() uint64 { return c.folded.Load() }

// All returns the counts of each class that has some, from all its shards.
func (c *Classes[Counts]) All() (all [][]*Counts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add := func(class *shardedClass[Counts]) {
		used := slices.DeleteFunc(slices.Clone(class.shards), func(counts *Counts) bool { return counts == nil })
		if len(used) > 0 {
			all = append(all, used)
		}
	}
	for _, class := range c.byClass {
		add(class)
	}
	add(&c.other)
	return all
}
