package quorumtest

// A Break is one way to get the protocol wrong. The breaks of package quorum itself are in
// internal/mutant.
type Break string

// Sound breaks nothing.
const Sound Break = ""

// These breaks concern the nodes.
const (
	RaiseAnyone  Break = "a counter is raised for a key of any attempt"
	RaiseDown    Break = "a counter is set to the target although it is higher"
	VoteAtOnce   Break = "a node that restarted votes at once"
	RetakeBlind  Break = "a lapsed key is taken again although the counter has passed the token"
	ExtendAnyone Break = "a lease is extended for a key of any attempt"
	FreeAnyone   Break = "a key of any attempt is freed"
)

// These breaks concern the agents.
const (
	NoReading    Break = "waiting without reading back"
	NoWaiting    Break = "reading back without waiting"
	ReadingFirst Break = "reading back before the wait"
)

// These breaks concern the clients.
const (
	ReplyTime Break = "the validity counts from the answer, and not from the request"
	SameNonce Break = "a client has the same nonce for all attempts"
)
