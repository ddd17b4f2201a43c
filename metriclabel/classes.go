package metriclabel

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/sniblock/snib/driver"
)

// Other is the class of the names that have no class of their own.
const Other = "other"

// defaultMax is the default for the greatest number of classes.
const defaultMax = 200

// Class is the default classification: it returns the part of a lock's name before the first
// separator that is followed by a digit. "invoices/2026-11" and "invoices/2026-12" are "invoices";
// "cron/report" stays unchanged. A separator is a byte of punctuation or a space.
//
// Names that are made unique in another way, for example by a UUID that begins with a letter, need
// a custom function.
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
type Classes[Counts any] struct {
	classOf   func(name string) string
	newCounts func(class string) *Counts
	limit     int

	seed   maphash.Seed
	known  [1 << 10]atomic.Pointer[knownName[Counts]]
	folded atomic.Uint64

	mu      sync.Mutex
	byClass map[string]*Counts
	other   *Counts // nil until it is needed
}

// A knownName is a name in the cache, with the counts of its class.
type knownName[Counts any] struct {
	name   string
	counts *Counts
}

// NewClasses returns Classes for the classes that classOf assigns to names. A nil classOf is
// [Class], and a limit of 0 is 200. newCounts returns new counts for a class, and is
// called once for each. A negative limit is an [snib.ErrInvalid].
func NewClasses[Counts any](classOf func(name string) string, limit int,
	newCounts func(class string) *Counts) (*Classes[Counts], error) {
	if classOf == nil {
		classOf = Class
	}
	switch {
	case limit < 0:
		return nil, driver.Invalidf("MaxResources: %d is negative", limit)
	case limit == 0:
		limit = defaultMax
	}
	return &Classes[Counts]{classOf: classOf, newCounts: newCounts, limit: limit, seed: maphash.MakeSeed(),
		byClass: map[string]*Counts{}}, nil
}

// Name returns the counts for the class of a name. A name that no lock can have, because
// [driver.CheckName] refuses it, is counted under [Other]: it takes up neither memory nor a class.
func (c *Classes[Counts]) Name(name string) *Counts {
	slot := &c.known[maphash.String(c.seed, name)%uint64(len(c.known))]
	if k := slot.Load(); k != nil && k.name == name {
		return k.counts
	}
	if driver.CheckName(name) != nil {
		return c.Class(Other)
	}
	counts := c.Class(c.classOf(name))
	slot.Store(&knownName[Counts]{name, counts})
	return counts
}

// Of returns the class of a name, which need not be one of those with counts.
func (c *Classes[Counts]) Of(name string) string { return Clean(c.classOf(name)) }

// Most returns the greatest number of classes, not counting [Other].
func (c *Classes[Counts]) Most() int { return c.limit }

// Class returns the counts of a class, or those of [Other] if there are too many classes.
func (c *Classes[Counts]) Class(class string) *Counts {
	class = Clean(class)
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.byClass[class]; known != nil {
		return known
	}
	if class != Other && len(c.byClass) < c.limit {
		class = strings.Clone(class) // do not keep the whole name in memory
		c.byClass[class] = c.newCounts(class)
		return c.byClass[class]
	}
	if class != Other {
		c.folded.Add(1)
	}
	if c.other == nil {
		c.other = c.newCounts(Other)
	}
	return c.other
}

// Folded returns how often a name was counted under [Other] because there were too many classes.
func (c *Classes[Counts]) Folded() uint64 { return c.folded.Load() }
