package serve

import (
	"context"
	"net/http"
	"time"
)

// A Verb is a right that an action needs.
type Verb string

const (
	VerbRead    Verb = "read"    // see locks, their holders and waiters, without their ids
	VerbAcquire Verb = "acquire" // acquire, and then renew, label, withdraw and release; fence a resource
	VerbBreak   Verb = "break"   // end another's hold by force
	VerbReserve Verb = "reserve" // keep a lock without a process
	VerbAdmin   Verb = "admin"   // see the audit log, what doctor finds, and the ids of holds: anyone who knows one can release its lock
)

// A Principal is who sends a request. It does not change.
type Principal struct {
	// Name is shown to people, in the audit log above all. It is no secret.
	Name string

	// Prefix begins the names of the principal's locks in the store. The principal uses names
	// without it, and neither sees nor reaches a lock outside.
	Prefix string

	// Rights belong to the Authorizer. The service does not look at them.
	Rights any
}

// An Action is what a principal wants to do with one lock, or with those whose names begin with a
// prefix.
type Action struct {
	Verb    Verb
	Name    string        // as the principal calls it; of a list, the prefix of the names that are asked for
	List    bool          // Name is a prefix: of the locks behind it, those that may not be read are left out
	Op      Op            // what the request asks for
	Token   uint64        // of the hold, as the request names it
	TTL     time.Duration // of the lease that is asked for
	MinHold time.Duration // for which the lock is taken, even if it is released; of an acquisition
	Why     string        // the reason that the client gives for a break or a reservation
}

// An Op is an operation of the service.
type Op string

const (
	OpAcquire  Op = "acquire"
	OpWithdraw Op = "withdraw"
	OpRenew    Op = "renew"
	OpRelease  Op = "release"
	OpLabel    Op = "label"
	OpBreak    Op = "break"
	OpFence    Op = "fence"
	OpGet      Op = "get"
	OpList     Op = "list"
	OpStore    Op = "store"
	OpMetrics  Op = "metrics"
	OpAudit    Op = "audit"
	OpDoctor   Op = "doctor" // about the whole store: all locks, outside of namespaces
	OpLeaks    Op = "leaks"
	OpEvents   Op = "events"
)

// An Authorizer decides who may do what. It is safe for concurrent use. An error that is a
// [*wire.Problem] is answered as it is, and any other as an internal error without its text.
type Authorizer interface {
	// Authenticate returns who sent a request. It is called once for each request but those of
	// /healthz and /readyz.
	Authenticate(r *http.Request) (*Principal, error)

	// Begin decides whether p may do a. If Begin returns no error, the service does it, and
	// then calls end once, with what came of it. An acquisition that waits calls end when its
	// poll ends; the next poll begins anew. End may be nil. An action that lists locks begins
	// again at its end, and a stream before each batch: Begin refuses it if the rights of p have
	// changed, because the answer may lack some locks.
	Begin(ctx context.Context, p *Principal, a Action) (end func(Outcome), err error)

	// May reports whether p has a right on a lock. It decides what answers contain, and records
	// nothing.
	May(p *Principal, v Verb, name string) bool
}

// An Outcome is what came of an action.
type Outcome struct {
	// Err is nil if the service did it. An acquisition that is still waiting is none that failed:
	// its Err is [driver.ErrHeld], as that of one that was refused.
	Err error

	Token uint64 // of the hold that was granted, or that the action is about; 0: unknown
}
