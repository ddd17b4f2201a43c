package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// Semaphores of other libraries that may be on the path of a lock.
const (
	curatorSemaphore = "a semaphore of Curator (InterProcessSemaphoreV2 or InterProcessSemaphoreMutex)"
	kazooSemaphore   = "a semaphore of kazoo"
)

// kazooLease matches the name of a node that a client of kazoo's Semaphore has for its lease. Some
// of these names end with ten digits, like those of contenders.
var kazooLease = regexp.MustCompile(`^[0-9a-f]{32}$`)

// semaphoreIn returns whose semaphore the folder of a lock is, or "". snap is the list of the
// folder. Curator makes two folders in it. kazoo writes the size of the semaphore into a folder
// that it has made. Our folders have no data, so this costs no request for them.
func (s *session) semaphoreIn(ctx context.Context, folder string, snap snapshot) (string, error) {
	switch {
	case slices.Contains(snap.names, "leases"), slices.Contains(snap.names, "locks"):
		return curatorSemaphore, nil
	case slices.ContainsFunc(snap.names, kazooLease.MatchString):
		return kazooSemaphore, nil
	case snap.stat.DataLength == 0:
		return "", nil
	}
	own, _, err := do(ctx, s, readNode(folder))
	if errors.Is(err, zk.ErrNoNode) {
		return "", nil
	}
	if _, notSize := strconv.ParseUint(string(own.data), 10, 31); err != nil || notSize != nil {
		return "", err
	}
	return kazooSemaphore, nil
}

// checkKind returns an error that matches ErrKind if the folder of a lock is in use as something
// else. snap is the list of the folder.
func (s *session) checkKind(ctx context.Context, folder string, snap snapshot) error {
	semaphore, err := s.semaphoreIn(ctx, folder, snap)
	if semaphore != "" {
		err = fmt.Errorf("%w: %s is in use as %s", driver.ErrKind, folder, semaphore)
	}
	return err
}

// checkFirst is checkKind for the first contender in a folder, which is read unless its name says
// that it is a lock.
func (s *session) checkFirst(ctx context.Context, folder string, queue []contender) error {
	if len(queue) == 0 || queue[0].recipe {
		return nil
	}
	snap, _, err := do(ctx, s, readNode(child(folder, queue[0].node)))
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return cmp.Or(err, queue[0].checkSession(folder, snap))
}

// checkSession returns an error that matches ErrKind if a contender that keeps us out belongs to no
// session.
func (c contender) checkSession(folder string, snap snapshot) error {
	if !c.isPersistent(snap) {
		return nil
	}
	return fmt.Errorf("%w: the node %s is no lock, because it belongs to no session; delete it",
		driver.ErrKind, child(folder, c.node))
}

// isPersistent reports whether a contender is a node that belongs to no session, and that no known
// lock library has made. It is no lock, and may stay for ever.
func (c contender) isPersistent(snap snapshot) bool {
	return !c.recipe && snap.stat.Czxid != 0 && snap.stat.EphemeralOwner == 0
}
