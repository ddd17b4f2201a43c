package label

import (
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
)

// Other is the class of the names that belong to no class of their own.
const Other = "other"

// DefaultMax is how many classes there are at most if nothing else is asked for.
const DefaultMax = 200

// Class is the class of a lock's name by default: the part before the first separator that is followed by a digit.
func Class(name string) string {
	for i := 0; i+1 < len(name); i++ {
		if next := name[i+1]; '0' <= next && next <= '9' && isSeparator(name[i]) {
			return name[:i]
		}
	}
	return name
}

// isSeparator reports whether b is a space or punctuation of ASCII.
func isSeparator(b byte) bool {
	switch {
	case b < ' ', b > '~', '0' <= b && b <= '9', 'A' <= b && b <= 'Z', 'a' <= b && b <= 'z':
		return false
	}
	return true
}

// maxLength bounds what is read of a text for a label, in bytes.
const maxLength = 128

// Clean makes a text fit to be the value of a label: Prometheus takes UTF-8 only, and an empty value for none.
func Clean(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxLength)], string(utf8.RuneError)) // also where a character was cut
	if text == "" {
		return Other
	}
	return text
}

// Classes find the counts for a name, those of its class. There are at most so many, and those of [Other].
//
// Each event of a hold asks, so the way from a name to the counts is remembered for some names: in a table of fixed size, where
// the hash of a name says which entry it may have. It bounds both memory and how often a costly function is asked.
type Classes[Counts any] struct {
	of    func(name string) string
	fresh func(class string) *Counts
	most  int

	seed   maphash.Seed
	known  [1 << 10]atomic.Pointer[known[Counts]]
	folded atomic.Uint64

	mu      sync.Mutex
	byClass map[string]*Counts
	other   *Counts // nil until there is one
}

// known is a name whose class was found.
type known[Counts any] struct {
	name   string
	counts *Counts
}

// NewClasses returns the classes that a function makes of names; nil is [Class], and most 0 is [DefaultMax]. fresh returns new counts
// for a class. A negative number is a [snib.ErrInvalid].
func NewClasses[Counts any](of func(name string) string, most int, fresh func(class string) *Counts) (*Classes[Counts], error) {
	if of == nil {
		of = Class
	}
	switch {
	case most < 0:
		return nil, fmt.Errorf("%w MaxResources: %d is negative", snib.ErrInvalid, most)
	case most == 0:
		most = DefaultMax
	}
	return &Classes[Counts]{of: of, fresh: fresh, most: most, seed: maphash.MakeSeed(), byClass: map[string]*Counts{}}, nil
}

// Name returns the counts for the class of a name.
func (c *Classes[Counts]) Name(name string) *Counts {
	slot := &c.known[maphash.String(c.seed, name)%uint64(len(c.known))]
	if k := slot.Load(); k != nil && k.name == name {
		return k.counts
	}
	counts := c.Class(c.of(name))
	if len(name) <= driver.MaxName { // longer ones are refused, and must not take up memory
		slot.Store(&known[Counts]{name, counts})
	}
	return counts
}

// Of returns the class of a name, which need not be among those that are counted.
func (c *Classes[Counts]) Of(name string) string { return Clean(c.of(name)) }

// Most is the greatest number of classes beside [Other].
func (c *Classes[Counts]) Most() int { return c.most }

// Class returns the counts of a class, or those of [Other] if there are too many.
func (c *Classes[Counts]) Class(class string) *Counts {
	class = Clean(class)
	c.mu.Lock()
	defer c.mu.Unlock()
	if counts := c.byClass[class]; counts != nil {
		return counts
	}
	if class != Other && len(c.byClass) < c.most {
		class = strings.Clone(class) // not all of the name that it was cut from
		counts := c.fresh(class)
		c.byClass[class] = counts
		return counts
	}
	if class != Other {
		c.folded.Add(1)
	}
	if c.other == nil {
		c.other = c.fresh(Other)
	}
	return c.other
}

// Folded is how often a name was found to belong to [Other] because there were too many classes.
func (c *Classes[Counts]) Folded() uint64 { return c.folded.Load() }

// All returns the counts of each class.
func (c *Classes[Counts]) All() []*Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*Counts, 0, len(c.byClass)+1)
	for _, counts := range c.byClass {
		all = append(all, counts)
	}
	if c.other != nil {
		all = append(all, c.other)
	}
	return all
}
