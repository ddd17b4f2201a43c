package zklock

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sniblock/snib/driver"
)

// A contender is a node in the folder of a lock: a holder or a waiter. Everything that matters
// for the order is in its name, so one list of names is enough to decide.
type contender struct {
	node   string // its name
	recipe bool   // it is named as a lock of snib, Curator or go-zookeeper
	seq    int32
	mode   mode
	slots  int  // for modeSlot; else 0
	kept   bool // released, and kept until its MinHold is over
}

// A mode is what a contender asks for.
type mode uint8

const (
	modeExclusive mode = iota
	modeShared
	modeSlot
)

// The name of a node is a prefix, an id, a suffix that tells its mode, and the number that the
// server appends. The first three suffixes are those of Curator, and the first also that of
// go-zookeeper; "__rlock__" is kazoo's.
const (
	suffixLock      = "-lock-"    // of InterProcessMutex
	suffixWrite     = "-__WRIT__" // of InterProcessReadWriteLock
	suffixRead      = "-__READ__" // likewise
	suffixKazooRead = "__rlock__" // of a ReadLock
	suffixSlot      = "-slot"     // followed by the size and a hyphen
	nodePrefix      = "_c_"       // of nodes that a client can find again, as in Curator
	keptPrefix      = "_k_"       // replaces nodePrefix in the names of kept nodes
	idLength        = len(zeroID) // of a UUID
	minSeqDigits    = 10          // of the number
	zeroID          = "00000000-0000-4000-8000-000000000000"
)

// nodeSuffix returns the suffix for the mode of a request. There are two for the exclusive
// mode; see [CuratorReadWrite].
func (c *config) nodeSuffix(req driver.Request) string {
	switch {
	case req.Slots > 0:
		return suffixSlot + strconv.Itoa(req.Slots) + "-"
	case req.Shared:
		return suffixRead
	case c.curatorReadWrite:
		return suffixWrite
	}
	return suffixLock
}

// parse reads the name of a node. It reports false for a name that does not end with a number:
// such a node takes no part.
func parse(name string) (c contender, ok bool) {
	c.node = name
	head, number := splitSeq(name)
	seq, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return c, false
	}
	c.seq = int32(seq)
	c.kept = strings.HasPrefix(name, keptPrefix)
	c.recipe = (c.kept || strings.HasPrefix(head, nodePrefix)) && len(head) >= len(nodePrefix)+idLength
	switch {
	case strings.HasSuffix(head, suffixRead[1:]), strings.HasSuffix(head, suffixKazooRead):
		c.mode = modeShared
	default:
		_, size, _ := strings.Cut(head, suffixSlot)
		if n, err := strconv.Atoi(strings.TrimSuffix(size, "-")); err == nil && n > 0 && strings.HasSuffix(size, "-") {
			c.mode, c.slots = modeSlot, n
		}
	}
	return c, true
}

// splitSeq separates the number that the server appended from the rest of the name. The number
// has at least ten characters, and an eleventh for the sign if the counter, an int32, has
// passed 2147483647. A hyphen is a sign only behind a suffix, which ends with a hyphen itself
// or with "__".
func splitSeq(name string) (head, number string) {
	i := len(name) - minSeqDigits
	if i < 0 {
		return name, ""
	}
	head, number = name[:i], name[i:]
	switch {
	case number[0] == '-' && allDigits(number[1:]):
		return head, number
	case !allDigits(number):
		return name, ""
	}
	if rest, signed := strings.CutSuffix(head, "-"); signed &&
		(strings.HasSuffix(rest, "-") || strings.HasSuffix(rest, "__")) {
		return rest, "-" + number
	}
	return head, number
}

func allDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// parseQueue returns the contenders among the names of a folder's nodes, in the order of
// arrival. The counter wraps around, so the shorter way decides.
func parseQueue(names []string) []contender {
	all := make([]contender, 0, len(names))
	for _, name := range names {
		if c, ok := parse(name); ok {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b contender) int {
		return cmp.Or(int(a.seq-b.seq), strings.Compare(a.node, b.node))
	})
	return all
}

// A verdict says what a contender is to do.
type verdict struct {
	granted     bool
	watch       string // the node whose deletion or change may matter
	watchFolder bool   // any change in the folder may matter
}

// judge decides whether a contender holds the lock, given the contenders that came before it.
// Contenders behind it do not matter.
//
// A lock and a semaphore can't share a name. The first in the queue decides, and contenders of
// another kind leave when they notice. Until they have left, those behind wait for them: such a
// contender may not have checked yet, and may find itself first when it does.
func judge(me contender, ahead []contender) (verdict, error) {
	if len(ahead) == 0 {
		return verdict{granted: true}, nil
	}
	if !ahead[0].sameKind(me) {
		return verdict{}, fmt.Errorf("%w: it is in use as %s", driver.ErrKind, ahead[0].kind())
	}
	last := func(in func(contender) bool) *contender {
		for i := range slices.Backward(ahead) {
			if in(ahead[i]) {
				return &ahead[i]
			}
		}
		return nil
	}
	if other := last(func(c contender) bool { return !c.sameKind(me) }); other != nil {
		return verdict{watch: other.node}, nil
	}
	switch me.mode {
	case modeShared:
		if writer := last(func(c contender) bool { return c.mode != modeShared }); writer != nil {
			return verdict{watch: writer.node}, nil
		}
		return verdict{granted: true}, nil
	case modeSlot:
		least := ahead[0].slots
		for _, c := range ahead {
			least = min(least, c.slots)
		}
		switch {
		case len(ahead) < min(least, me.slots):
			return verdict{granted: true}, nil
		case len(ahead) <= least: // the first waiter: any of the holders may leave next
			return verdict{watchFolder: true}, nil
		}
	}
	return verdict{watch: ahead[len(ahead)-1].node}, nil
}

func (c contender) sameKind(d contender) bool { return (c.slots > 0) == (d.slots > 0) }

func (c contender) kind() string {
	if c.mode == modeSlot {
		return "a semaphore"
	}
	return "a lock"
}
