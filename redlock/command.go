package redlock

import (
	"strconv"
	"strings"
	"sync"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// A command is one request to one node. The codes and arguments are described at the scripts.
type command struct {
	code byte
	lock *lock
	args []string

	// node is the index of the node that the command is for.
	node int

	answer string // that of the node; it belongs to the node's goroutine

	receiver receiver       // of the answer; nil if nobody waits for it
	sendBy   driver.Instant // when it is no longer worth sending; zero: never

	// The following fields are guarded by node.mu.
	state         state
	maybeExecuted bool // an earlier send may have been carried out
}

// A receiver takes the answer to a command. The node's goroutine calls it and waits for
// it. An error means that the node did not answer, or that it is unknown whether it
// carried out the command.
type receiver interface {
	onAnswer(cmd *command, answer string, err error)
}

// A state says how far a command has come.
type state uint8

const (
	unsent   state = iota // not sent; perhaps queued
	sent                  // may have reached the node
	canceled              // will not be sent
)

// A lock has the keys and the counter by which commands refer to a lock.
type lock struct {
	key          string
	waitersKey   string
	stripe       int
	counterField string
}

func lockOf(name string) lock {
	stripe, field := stripeOf(name)
	return lock{key: keyOf(name), waitersKey: waitersKeyOf(name), stripe: stripe, counterField: field}
}

// noLock is used by commands that refer to no lock. Its keys are those that a user may access in
// any case.
var noLock = sync.OnceValue(func() *lock {
	l := lockOf(metaKey)
	l.key, l.waitersKey = metaKey, metaKey
	return &l
})

// set writes the code, the lock and the arguments of the command.
func (cmd *command) set(code byte, l *lock, args ...string) {
	cmd.code, cmd.lock, cmd.args, cmd.state = code, l, args, unsent
}

// script returns the script that implements the command.
func (cmd *command) script() *rediskit.Script {
	if strings.IndexByte("arefbxdh", cmd.code) >= 0 {
		return holdScript
	}
	return adminScript
}

// A scriptCall is a batch of commands for one script, encoded as its keys and arguments.
type scriptCall struct {
	script     *rediskit.Script
	keys, args []string
}

// maxBatch limits the commands of a call, during which a node does nothing else.
const maxBatch = 128

func (c *scriptCall) write(cluster, self string, batch []*command) {
	c.script = batch[0].script()
	c.keys = append(c.keys[:0], metaKey)
	for _, cmd := range batch {
		c.keys = append(c.keys, cmd.lock.key)
	}
	c.args = append(c.args[:0], cluster, self, strconv.Itoa(len(batch)))
	for _, cmd := range batch {
		c.args = append(c.args, cmd.lock.counterField)
	}
	for _, cmd := range batch {
		c.args = append(append(c.args, string([]byte{cmd.code})), cmd.args...)
	}
}
