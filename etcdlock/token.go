package etcdlock

// A token is the create revision of a key, followed by indexBits bits: the index in the block
// of tokens that the hold has reserved. So the tokens of a hold lie between those of the keys
// before and after it, even if other programs have put these keys.
const indexBits = 16

// tokenOf returns the first token of the hold whose key was created at a revision. With a thousand
// writes a second, tokens pass 2^53 in four years, and 2^63 in four thousand.
func tokenOf(revision int64) uint64 { return uint64(revision) << indexBits }
