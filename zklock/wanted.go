package zklock

import (
	"slices"
	"time"
)

// startWanted has the holder told when a node stands behind that of the lease. hasFollower says
// that there is such a node already.
func (l *lease) startWanted(hasFollower bool) {
	if l.grant.TellsWanted && (hasFollower || !l.s.d.life.Go(l.awaitFollower)) {
		l.markWanted()
	}
}

// markWanted tells the holder that another process waits.
func (l *lease) markWanted() {
	if l.req.OnWanted != nil {
		l.req.OnWanted()
	}
}

// awaitFollower tells the holder when a node stands behind that of the lease, or when nobody can
// tell. It watches the folder until the lease ends. A node of this process counts, too: the Locker
// knows of it, and goes through the ensemble in any case.
func (l *lease) awaitFollower() {
	for {
		ev, snap, err := l.s.watch(l.s.ctx, watchKey{path: l.folder, children: true})
		if err != nil || l.isFollowed(snap.names) {
			l.markWanted()
			return
		}
		select {
		case <-ev.changed:
		case <-time.After(l.s.d.conf.timeout): // a watch event that got lost costs no more than this
		case <-l.done:
			return
		}
	}
}

// isFollowed reports whether a node stands behind that of the lease, among the names in its folder.
func (l *lease) isFollowed(names []string) bool {
	queue := parseQueue(names)
	i := slices.IndexFunc(queue, func(c contender) bool { return c.node == baseName(l.path) })
	return i >= 0 && i < len(queue)-1
}
