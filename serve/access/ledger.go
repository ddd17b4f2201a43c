package access

import (
	"crypto/sha256"
	"fmt"
	"time"
)

// An ownerID stands for an owner and its lock without being a secret.
type ownerID [sha256.Size]byte

func newOwnerID(name, owner string) ownerID {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q", name, owner))
}

// A holdID names a hold. An owner may have several of a lock that is shared, or that has slots;
// the token 0 stands for the oldest one.
type holdID struct {
	owner ownerID
	token uint64
}

// A ledger says when each hold was granted, as far as the store knows it.
type ledger struct {
	owners map[ownerID]map[uint64]time.Time // by the token
	size   int                              // number of holds
}

func newLedger(holds map[holdID]time.Time) ledger {
	l := ledger{owners: map[ownerID]map[uint64]time.Time{}}
	for id, since := range holds {
		l.add(id, since)
	}
	return l
}

func (l *ledger) add(id holdID, since time.Time) {
	l.remove(id)
	if l.owners[id.owner] == nil {
		l.owners[id.owner] = map[uint64]time.Time{}
	}
	l.owners[id.owner][id.token] = since
	l.size++
}

func (l *ledger) remove(id holdID) {
	tokens := l.owners[id.owner]
	if _, had := tokens[id.token]; !had {
		return
	}
	l.size--
	if delete(tokens, id.token); len(tokens) == 0 {
		delete(l.owners, id.owner)
	}
}

// since returns when a hold was granted, and whether there is one.
func (l *ledger) since(id holdID) (since time.Time, ok bool) {
	if id.token != 0 {
		since, ok = l.owners[id.owner][id.token]
		return since, ok
	}
	for _, t := range l.owners[id.owner] {
		if !ok || t.Before(since) {
			since, ok = t, true
		}
	}
	return since, ok
}
