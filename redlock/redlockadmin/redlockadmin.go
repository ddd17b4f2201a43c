// Package redlockadmin is for people who operate the Redis servers that package redlock keeps locks
// on. "snib redlock" and "snib doctor" are built on it.
package redlockadmin

import (
	"context"
	"fmt"
)

// An Admin sets up the nodes of a cluster, and answers questions about them. The function Admin of
// package redlock returns one. Only that package implements Admin, which may get methods. It is
// safe for concurrent use. Errors about its servers and options are reported by each method.
type Admin interface {
	// Init makes N servers the nodes of a cluster, which takes part at once. All must answer.
	// Init is for new servers only: nobody may hold a lock that one of them has forgotten.
	// Without Init, new servers are admitted as if they had restarted, after MaxTTL.
	//
	// Calling Init again does nothing. If some of the servers belong to the cluster and others
	// are blank, the blank ones have lost their memory. Init then returns an error that matches
	// driver.ErrInvalid, and the clients admit those nodes.
	Init(ctx context.Context) error

	// Examine asks each node for its state, and changes nothing. The result is sorted by
	// address and also reports what is wrong with nodes. The error is about the servers and
	// options of the Admin.
	Examine(ctx context.Context) ([]NodeStatus, error)

	// Recover admits the nodes that are excluded. If a majority has lost its memory, the counters
	// start at floor, which must be at least the greatest token that any resource has seen. Recover
	// returns when all nodes that answer are admitted, MaxTTL and 2 % after a client or Recover first
	// saw that they had restarted, or with an error when ctx is done. Calling it again goes on.
	Recover(ctx context.Context, floor uint64) error
}

// A NodeStatus is the condition of a node.
type NodeStatus struct {
	Address string

	// State is NodeAdmitted if the node takes part.
	State NodeState

	// Err says why the node is unreachable or refused.
	Err error

	// Counters says which counters of an admitted node can't be right, or is nil. A bad client
	// or a bad clock made them. The node grants no locks that use these counters. To repair it,
	// run "DEL snib.redlock" on the node while a majority of the others is well: it takes part
	// again after MaxTTL, with their counters.
	Counters error
}

// A NodeState says whether a node takes part.
type NodeState uint8

const (
	NodeUnreachable NodeState = iota // it does not answer
	NodeRefused                      // it can't be a node, or belongs to others
	NodeBlank                        // it remembers nothing: it is new, or has lost its memory
	NodeWaiting                      // it restarted, and stays excluded for MaxTTL
	NodeAdmitted                     // it takes part
)

func (s NodeState) String() string {
	switch s {
	case NodeUnreachable:
		return "unreachable"
	case NodeRefused:
		return "refused"
	case NodeBlank:
		return "blank"
	case NodeWaiting:
		return "waiting"
	case NodeAdmitted:
		return "admitted"
	}
	return fmt.Sprintf("state %d", uint8(s))
}
