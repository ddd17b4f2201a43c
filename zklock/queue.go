package zklock

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sniblock/snib/driver"
)

// A contender is a node in the folder of a lock: somebody who holds it, or waits. All that decides stands in its name, so
// that one list of names tells everything.
type contender struct {
	node  string // its name
	id    string // by which its client finds it again; "" if it has none
	seq   int32
	mode  mode
	slots int  // for modeSlot; else 0
	kept  bool // released, and to stay until its MinHold is over
}

// A mode is what a contender asks for.
type mode uint8

const (
	modeExclusive mode = iota
	modeShared
	modeSlot
)

// The marks that stand in the names of nodes between the id and the number that the server appends. Those of Curator and of
// go-zookeeper are in the first three; "__rlock__" is kazoo's.
const (
	markLock  = "-lock-"    // of InterProcessMutex
	markWrite = "-__WRIT__" // of InterProcessReadWriteLock
	markRead  = "-__READ__" // likewise
	kazooRead = "__rlock__" // of a ReadLock
	markSlot  = "-slot"     // and the size, and a hyphen
	prefix    = "_c_"       // of nodes that a client can find again, as in Curator
	keptMark  = "_k_"       // instead, of those that are kept
	idLength  = len(zeroID) // of a UUID
	digits    = 10          // of the number, at least
	zeroID    = "00000000-0000-4000-8000-000000000000"
)

// mark is what stands in the name of a node for a request. The exclusive side has two dialects; see [CuratorReadWrite].
func (c *config) mark(req driver.Request) string {
	switch {
	case req.Slots > 0:
		return markSlot + strconv.Itoa(req.Slots) + "-"
	case req.Shared:
		return markRead
	case c.readWrite:
		return markWrite
	}
	return markLock
}

// parse reads the name of a node. Not ok means that it takes no part: it does not end with a number.
func parse(name string) (c contender, ok bool) {
	c.node = name
	head, number := split(name)
	seq, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return c, false
	}
	c.seq = int32(seq)
	c.kept = strings.HasPrefix(name, keptMark)
	if rest := strings.TrimPrefix(strings.TrimPrefix(head, prefix), keptMark); rest != head && len(rest) >= idLength {
		c.id = rest[:idLength]
	}
	switch {
	case strings.HasSuffix(head, markRead[1:]), strings.HasSuffix(head, kazooRead):
		c.mode = modeShared
	default:
		_, size, _ := strings.Cut(head, markSlot)
		if n, err := strconv.Atoi(strings.TrimSuffix(size, "-")); err == nil && n > 0 && strings.HasSuffix(size, "-") {
			c.mode, c.slots = modeSlot, n
		}
	}
	return c, true
}

// split parts the number that the server appended from the rest: at least ten characters, and an eleventh for the sign if the
// counter, an int32, has gone beyond 2147483647. A hyphen is a sign only behind a mark, which ends with a hyphen itself or with
// "__".
func split(name string) (head, number string) {
	i := len(name) - digits
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
	if rest, signed := strings.CutSuffix(head, "-"); signed && (strings.HasSuffix(rest, "-") || strings.HasSuffix(rest, "__")) {
		return rest, "-" + number
	}
	return head, number
}

func allDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// before reports whether c came before d. The counter wraps around, so what counts is which way is the shorter one.
func (c contender) before(d contender) bool {
	if c.seq != d.seq {
		return c.seq-d.seq < 0
	}
	return c.node < d.node
}

// line are the contenders among the names of a folder's nodes, in the order in which they came.
func line(names []string) []contender {
	all := make([]contender, 0, len(names))
	for _, name := range names {
		if c, ok := parse(name); ok {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b contender) int {
		switch {
		case a.before(b):
			return -1
		case b.before(a):
			return 1
		}
		return cmp.Compare(a.node, b.node)
	})
	return all
}

// A verdict says what a contender is to do.
type verdict struct {
	granted bool
	watch   string // the node whose end, or change, may make a difference
	all     bool   // any change in the folder may
}

// judge says whether a contender holds the lock, given who came before it. It does not depend on those behind.
//
// A lock and a semaphore, or semaphores of different sizes, do not go together: the first in line decides, and whoever is of
// another kind goes away by itself when it finds that out. Until it has, those behind wait for it: it may not have looked
// yet, and find itself the first when it does.
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
		switch {
		case len(ahead) < me.slots:
			return verdict{granted: true}, nil
		case len(ahead) == me.slots: // first of those that wait: any holder may be the next to go
			return verdict{all: true}, nil
		}
	}
	return verdict{watch: ahead[len(ahead)-1].node}, nil
}

func (c contender) sameKind(d contender) bool { return c.slots == d.slots }

func (c contender) kind() string {
	if c.mode == modeSlot {
		return fmt.Sprintf("a semaphore of %d slots", c.slots)
	}
	return "a lock"
}

// A place is that of a node in the line: the zxid that its folder was made with, and its number.
type place struct {
	folder int64
	seq    int32
}

// before reports whether the last change of a folder was that a node was made there, so that the folder's Pzxid is the node's
// Czxid. p is the place of a node that was alone there, and that its session has deleted before.
//
// It is so if the node has the number after that one's, if it is alone now, and if nobody has come since: Cversion counts each
// node that was ever made twice, less those that there are.
func (p place) before(name string, folder sight) bool {
	me, ok := parse(name)
	return ok && len(folder.names) == 1 && folder.names[0] == name && folder.stat.Czxid == p.folder && me.seq == p.seq+1 &&
		folder.stat.Cversion == 2*(me.seq+1)-1
}
