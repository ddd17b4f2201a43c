package etcdlock

import "fmt"

// A token is the create revision of a key, followed by indexBits bits: the index in the block
// of tokens that the hold has reserved. So the tokens of a hold lie between those of the keys
// before and after it, even if other programs have put these keys.
const indexBits = 16

// maxRevision is the greatest revision that leaves room for the index in a number of 63 bits,
// which is what databases have. At a thousand writes a second etcd gets there in 4,000 years.
// It passes 2^53, up to which JSON and Lua are exact, in four.
const maxRevision = 1<<(63-indexBits) - 1

// tokenOf returns the first token of the hold whose key was created at a revision.
func tokenOf(revision int64) uint64 { return uint64(revision) << indexBits }

// checkRevision returns an error if a revision is too great for tokens.
func checkRevision(revision int64) error {
	if revision > maxRevision {
		return fmt.Errorf("etcd is at revision %d, and fencing tokens have room for revisions up to %d: keep locks in a "+
			"younger cluster",
			revision, int64(maxRevision))
	}
	return nil
}
