package zklock

import (
	"slices"
	"time"
)

// startWanted has Grant.Wanted closed when a node stands behind that of the lease, as far as a
// holder with a block of tokens cares: its process hands the lock over among its own goroutines.
// hasFollower says that there is such a node already.
func (l *lease) startWanted(hasFollower bool) {
	if l.wanted != nil && (hasFollower || !l.s.d.life.Go(l.awaitFollower)) {
		close(l.wanted)
	}
}

// awaitFollower closes wanted when a node stands behind that of the lease, or when nobody can tell.
// It watches the folder until the lease ends. A node of this process counts, too: the Locker knows
// of it, and goes through the ensemble in any case.
func (l *lease) awaitFollower() {
	for {
		ev, snap, err := l.s.watch(l.s.ctx, watchKey{path: l.folder, children: true})
		if err != nil || l.isFollowed(snap.names) {
			close(l.wanted)
			return
		}
		timer := time.NewTimer(l.s.d.conf.timeout) // a watch event that got lost costs no more than this
		select {
		case <-ev.changed:
		case <-timer.C:
		case <-l.done:
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// isFollowed reports whether a node stands behind that of the lease, among the names in its folder.
func (l *lease) isFollowed(names []string) bool {
	queue := parseQueue(names)
	i := slices.IndexFunc(queue, func(c contender) bool { return c.node == baseName(l.path) })
	return i >= 0 && i < len(queue)-1
}
