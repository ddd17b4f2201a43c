package redlock

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

// An order is one request to one node. What it asks for stands in the scripts under its code.
type order struct {
	code byte
	lock *lock
	args [6]string
	n    int // of args

	node int            // that it is for
	to   receiver       // of the answer; nil: nobody is interested
	end  driver.Instant // from then on it is not worth sending; zero: never

	// Guarded by node.mu:
	state state
	doubt bool // it may have been carried out before
}

// A receiver takes the answer to an order, from the node's own goroutine, which waits for it. An error means that the node did not
// answer, or that it is not known to have done what it was asked.
type receiver interface {
	answered(o *order, answer string, err error)
}

// A state is how far an order has come.
type state uint8

const (
	unsent    state = iota // nowhere, or in the queue
	sent                   // it may have reached the node
	withdrawn              // it will not
)

// A lock is what requests name it by.
type lock struct {
	key     string
	waitKey string
	stripe  int
	field   string
}

func lockOf(name string) lock {
	stripe, field := stripeOf(name)
	return lock{key: keyOf(name), waitKey: waitKeyOf(name), stripe: stripe, field: field}
}

// noLock stands in orders that are about no lock.
var noLock = sync.OnceValue(func() *lock {
	l := lockOf(" ")
	return &l
})

// set writes what is asked for.
func (o *order) set(code byte, l *lock, args ...string) {
	o.code, o.lock, o.state = code, l, unsent
	o.n = copy(o.args[:], args)
}

// script returns the one that knows the order.
func (o *order) script() *script {
	if strings.IndexByte("aAgrefbxd", o.code) >= 0 {
		return holdScript
	}
	return restScript
}

// A call is a batch of orders for one script in the form that it takes.
type call struct {
	script     *script
	keys, args []string
}

// maxBatch bounds a call: a node does nothing else meanwhile.
const maxBatch = 128

func (c *call) write(cluster, self string, batch []*order) {
	c.script = batch[0].script()
	c.keys = append(c.keys[:0], metaKey)
	for _, o := range batch {
		c.keys = append(c.keys, o.lock.key)
	}
	c.args = append(c.args[:0], cluster, self, strconv.Itoa(len(batch)))
	for _, o := range batch {
		c.args = append(c.args, o.lock.field)
	}
	for _, o := range batch {
		c.args = append(append(c.args, codes[o.code:o.code+1]), o.args[:o.n]...)
	}
}

// codes has each code at its place, so that none has to be made a string.
var codes = func() string {
	var b strings.Builder
	for c := range byte(128) {
		b.WriteByte(c)
	}
	return b.String()
}()

// millis rounds up: a node must not end a lease before its holder does.
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}
