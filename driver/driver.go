// Package driver is the contract between snib and the stores that keep its locks.
//
// A backend implements [Driver] and [Lease]. Package snib calls them; its users never do. The
// conformance suite in driver/drivertest checks the sentences with MUST below, case by case.
//
// The contract grows by fields of [Request], [Grant], [Renewal] and [Info] whose zero values
// mean "as before", and never by optional interfaces, so that a wrapper (fault injection,
// metrics, a network) does not lose an ability.
package driver

import (
	"context"
	"time"
)

// A Driver takes leases in one store. It is safe for concurrent use.
//
// A driver is not reentrant: two requests with different ids MUST exclude each other also
// when they come through the same driver, the same connection and the same session.
//
// Errors are returned raw: the core adds operation, name and backend. An error MUST NOT contain
// a secret.
type Driver interface {
	// Info returns what this driver promises. It is constant, and known without asking the
	// store.
	Info() Info

	// Acquire takes a lease. It waits by the backend's own means until the lease is granted or
	// ctx is done. With [Request.NoWait] it returns [ErrHeld] at once if the lock is taken.
	//
	// Acquire MUST NOT grant once ctx is done. It then returns an error that matches
	// [context.Cause] within [CancelTimeout], also when the store hangs. The error matches
	// [ErrUnavailable] as well if the store, when Acquire last knew its state, was out of reach
	// or granted nothing to anybody.
	//
	// When Acquire fails for whatever reason it MUST have withdrawn the request: neither a
	// lease nor a place in a queue stays behind, even if that takes a detached, bounded call of
	// its own. If the store does not answer within CancelTimeout, that call goes on in the
	// background. If the store is dead and the request can't be withdrawn, it lapses within one
	// TTL.
	//
	// A failure that a later attempt may not see (a refused or reset connection, no answer, too
	// many connections, a server that starts) matches ErrUnavailable, and [ErrFull] as well if
	// there are too many connections. If the request may wait, the core retries after such a
	// failure: for [Request.RetryLimit], or without a limit after ErrFull. The core can't know when
	// the store became unavailable to a request that it had answered before, as it does when it queues
	// one. So the driver itself retries such a request for [Request.RetryLimit], also while it only
	// waits in the queue. A pooled connection that turns out to be stale is no failure: the driver
	// uses another one, at once.
	//
	// No two calls of Acquire have the same [Request.ID]. A driver may send the request of a call
	// again when its answer was lost, and MUST recognise it by the id: it is granted once, with one
	// token and a Start of the request that was answered, or keeps its place. After a driver has
	// withdrawn an attempt, it MUST NOT send it again.
	//
	// A request of another attempt or grant changes nothing, whenever it arrives: it MUST NOT touch
	// a grant, or a place in a queue, that has another id. An attempt that arrives after it was
	// withdrawn is not granted where the store can know that; at worst it lapses within one TTL.
	//
	// After Close, Acquire returns [ErrClosed]. So do the calls that are waiting when Close is
	// called.
	Acquire(ctx context.Context, req Request) (Lease, error)

	// Lease returns the lease with the given id on a lock, without a request to the store. It may have
	// been acquired by another process. Its Grant is the zero value. If there is no such lease, its
	// methods and Renew answer [ErrLost] and change nothing. Where the tenure is a session, they MUST
	// return [errors.ErrUnsupported] and change nothing: only what Acquire returned acts on a lease.
	Lease(name, id string, ttl time.Duration) Lease

	// Renew asks the store to extend each lease to one TTL from now. It MUST NOT shorten a lease. It
	// returns one answer for each lease, in order. A batch is one round trip where the backend can do
	// it. All leases come from this driver.
	//
	// Renew MUST NOT revive: a lease that has ended, by expiry, release or force, is answered
	// with [ErrLost], also when nobody has taken the lock since. Any other error means that the
	// outcome is not known, and matches ErrUnavailable if a later call may not see it; the caller
	// renews again while there is time. Renew MUST return soon after ctx is done.
	//
	// Where the tenure is a lease, nothing else extends one: the core gives up a lost hold with a
	// LockDelay without a release, and its lease must lapse.
	//
	// With [Info.RenewsAll], Renew without leases renews all leases of the driver that were granted
	// before the call, and returns one answer for them. The driver MUST have called OnLost of those
	// that had ended when Renew was called, before it returns. An error does not match ErrLost.
	Renew(ctx context.Context, due []Lease) []Renewal

	Inspector

	// Close frees the resources that the driver uses on the client side. Leases that were not
	// released lapse by themselves or end, but for [Request.LockDelay]. Close may be called more
	// than once.
	Close() error
}

// A Lease is the store's grant behind a hold.
//
// Its requests name the lease by its id, and compare and act in one step. So they change nothing
// once the lease has ended, whoever holds the lock then.
type Lease interface {
	// ID returns the id of the attempt that led to the grant. It is a secret: whoever knows it can
	// release the lock.
	ID() string

	// Grant returns what the store said when it granted the lease. It does not change.
	Grant() Grant

	// Release gives the lease up, with the MinHold of its request; where the tenure is a lease, from
	// whichever process it is sent. A lease that had ended before is answered with [ErrLost]. Calling
	// Release again is harmless; after a first success it returns nil. Where the tenure is a session,
	// a Release that fails, also because ctx is done, MUST free the lock later: nobody calls it again.
	Release(ctx context.Context) error

	// SetHolder changes what an [Inspector] shows of the holder. It MUST NOT change anything else: not
	// the end of the lease, not the queue. A lease that has ended is answered with [ErrLost]. After
	// any other error the store may show either. SetHolder MUST return soon after ctx is done. If the
	// store can't do it, the error is [errors.ErrUnsupported].
	SetHolder(ctx context.Context, h Holder) error
}

// An Inspector answers people's questions about a store. Its methods return soon after their
// context is done, and need not return before: the core bounds Status by [AnswerTimeout], and the
// caller of List knows how long a whole store may take. Where the store can't be reached, the error
// of Status matches [ErrUnavailable], as that of Acquire does: readiness probes ask for it.
type Inspector interface {
	// Status returns who holds a lock and who waits for it. A lock that nobody holds has a
	// Status without Holders.
	Status(ctx context.Context, name string) (Status, error)

	// List calls yield for each lock that is held or waited for and whose name starts with
	// prefix, in the order of names where the store has one, until yield returns false. It MUST
	// NOT hold the store up. Where the store returns locks in pages, List takes memory for one
	// page and not for all locks. A lock that is taken or freed meanwhile may or may not be
	// seen; a store that is being reorganised may show a lock twice.
	List(ctx context.Context, prefix string, yield func(Status) bool) error

	// Break frees the hold with the given id by force, or ends what MinHold keeps after its
	// release: it compares and frees in one atomic step. If there is no such hold any more,
	// Break returns [ErrLost] and frees nothing. The former holder's next renewal is refused.
	Break(ctx context.Context, name, id string) error

	// Withdraw removes the place of an attempt from the queue of a lock, and lets those behind it
	// have their turn: its process may be dead. It MUST leave holds alone: a request that is granted
	// meanwhile stays so. Where there is no such place, it does nothing. If the process that waits
	// is alive after all, its request goes to the end of the queue. A store that soon ends the place
	// of a dead process by itself, such as with its session, need not do it: the error is then
	// [errors.ErrUnsupported].
	Withdraw(ctx context.Context, name, id string) error
}

// A Request says what to acquire. The zero values of all fields but Name, ID and TTL ask for
// the usual case: an exclusive lock, and to wait for it.
type Request struct {
	// Name of the lock: 1 to 512 bytes of UTF-8 without NUL, checked by the core ([CheckName]).
	// A driver escapes or hashes what its store can't take; it MUST NOT reject a name, fold its
	// case, or let two names share a lock.
	Name string

	// ID names this attempt, and the grant that it leads to. Nobody can guess it, and each call of
	// Acquire has another one.
	ID string

	// TTL is how long the lease outlives a holder that died. It is positive and within Info's
	// range.
	TTL time.Duration

	// NoWait asks for ErrHeld instead of waiting.
	NoWait bool

	// RetryTimeout is how long a request that may wait is retried while the store is unavailable.
	// Zero means [RetryTimeout]. See [Request.RetryLimit].
	RetryTimeout time.Duration

	// Shared asks for the read side: many shared leases, or one that is not shared. Waiting for
	// the write side MUST NOT starve behind a stream of readers.
	Shared bool

	// Slots, if positive, makes the name a semaphore. It never has more leases than any of their
	// requests asked for: of several numbers, the least counts, and who does not fit waits. While
	// anybody holds it, a request of another kind is [ErrKind]. It is at most [MaxSlots].
	Slots int

	// MinHold keeps the lock taken, after Release, until it has been held this long by the
	// store's clock. Release itself does not wait.
	MinHold time.Duration

	// Tokens is how many consecutive fencing tokens the caller can use, for holds that it hands
	// over by itself under this one lease. 0 and 1 ask for one. A driver grants [MaxTokens] at
	// most, and one if it can't reserve tokens. See [Request.TokenBlock].
	Tokens int

	// Detached asks for a lease that outlives the process that took it: only its TTL, Release
	// or Break ends it. A backend that frees the leases of dead processes early MUST NOT do so
	// with this one. It is [ErrInvalid] where the tenure is a session.
	Detached bool

	// OnLost, if not nil, is called at most once, when the driver learns, other than by an
	// answer of Renew or Release, that the store or the session has ended the lease: by force,
	// by expiry, or with its connection. The error matches [ErrLost]. A Release is no loss.
	// With [Info.TellsLoss] the driver MUST call it soon after a Break.
	//
	// The call may come before Acquire has returned. OnLost returns at once and does not call
	// the driver, so the driver may call it while it holds a mutex of its own.
	OnLost func(error) `json:"-"` // tests send requests to other processes

	// OnWanted, if not nil, is called at most once, when the driver learns that another process
	// waits for the lock, or when it can no longer tell. [Grant.TellsWanted] says whether the driver
	// calls it for this lease; with [Info.TellsWanted], it does so if [Request.TokenBlock] is more
	// than 1. The call may come before Acquire has returned. OnWanted returns at once and does not
	// call the driver.
	OnWanted func() `json:"-"`

	// OnWait, if not nil, tells the caller of Acquire why the request waits. Goroutines that wait
	// behind it, in the same process, return that reason if their time is over first.
	//
	// The driver MUST call OnWait with nil once the store has said that the lock is held, or has
	// queued the request. If a try fails and Acquire will try again, the driver MUST call OnWait
	// with the error, which matches [ErrUnavailable] and no error of a context. It may repeat a call.
	// It MUST NOT call OnWait after Acquire has returned. OnWait does not call the driver, as OnLost
	// does not.
	OnWait func(error) `json:"-"`

	// Holder is shown to people who inspect the lock.
	Holder Holder

	// LockDelay is the last part of TTL: for this time the lock stays taken after the end of a
	// hold that was lost. The core takes care of that, and most drivers ignore LockDelay. A
	// driver that ends a lease before its TTL because a connection was lost or by Close, and would
	// then free the lock, frees it only after this time.
	LockDelay time.Duration
}

// Check reports, as an error that matches [ErrInvalid], what is wrong with a request on any
// backend. It does not check the name; the core does, with [CheckName].
func (r Request) Check() error {
	switch {
	case r.TTL <= 0:
		return Invalidf("TTL %v: it must be positive", r.TTL)
	case r.TTL > LongestTTL:
		return Invalidf("TTL %v: it is longer than %v", r.TTL, LongestTTL)
	case r.MinHold > LongestTTL:
		return Invalidf("MinHold %v: it is longer than %v", r.MinHold, LongestTTL)
	case r.Slots < 0 || r.Slots > MaxSlots:
		return Invalidf("number of slots %d: it is not between 0 and %d", r.Slots, MaxSlots)
	case r.Slots > 0 && r.Shared:
		return Invalidf("request: a semaphore has no read side")
	}
	return nil
}

// NoteWait calls OnWait, if there is one.
func (r Request) NoteWait(err error) {
	if r.OnWait != nil {
		r.OnWait(err)
	}
}

// MaxTokens is how many tokens a driver may reserve for a lease. Each token puts the store's
// numbers ahead of its clock by a microsecond, and an unlimited block would leave none for later.
const MaxTokens = 4096

// TokenBlock returns how many tokens to reserve: 1 to [MaxTokens]. Only an exclusive hold can be
// handed over, and use more than one.
func (r Request) TokenBlock() int {
	if r.Shared || r.Slots > 0 {
		return 1
	}
	return min(max(r.Tokens, 1), MaxTokens)
}

// RetryLimit returns how long the request is retried while the store is unavailable.
func (r Request) RetryLimit() time.Duration {
	if r.RetryTimeout > 0 {
		return r.RetryTimeout
	}
	return RetryTimeout
}

// A Holder describes a holding or waiting process to people, who must not take Host, PID and Label
// for proof. Kind alone decides: a hold is adopted only if it is detached, for instance.
type Holder struct {
	Host  string
	PID   int
	Label string // free text, such as the command that runs under the lock
	Kind  HolderKind
}

// Text returns the label for people, after what keeps the hold if that is neither a process nor its
// TTL: "reserved: new disks".
func (h Holder) Text() string {
	switch {
	case h.Kind != KindReserved && h.Kind != KindPending && h.Kind != KindKept:
		return h.Label
	case h.Label == "":
		return h.Kind.String()
	}
	return h.Kind.String() + ": " + h.Label
}

// A HolderKind says what keeps a hold alive.
type HolderKind uint8

const (
	// KindProcess means that the process that is shown holds the lock and renews its lease.
	KindProcess HolderKind = iota

	// KindDetached means that the hold outlives the process that is shown, until it is released or
	// its TTL ends. Another process may continue it.
	KindDetached

	// KindReserved means that a person has reserved the lock by a lock service.
	KindReserved

	// KindPending means that a lock service was granted the lock for a client that has not been told
	// yet.
	KindPending

	// KindKept means that the hold was released, and that its MinHold keeps the lock taken. No request
	// has it.
	KindKept
)

func (k HolderKind) String() string {
	switch k {
	case KindDetached:
		return "detached"
	case KindReserved:
		return "reserved"
	case KindPending:
		return "pending"
	case KindKept:
		return "kept"
	default:
		return "process"
	}
}

// MarshalText implements [encoding.TextMarshaler].
func (k HolderKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. A kind that it does not know is KindProcess,
// which nobody may adopt.
func (k *HolderKind) UnmarshalText(text []byte) error {
	*k = KindProcess
	for _, known := range []HolderKind{KindDetached, KindReserved, KindPending, KindKept} {
		if known.String() == string(text) {
			*k = known
		}
	}
	return nil
}

// A Grant is what the store gave. A field that the driver knows nothing of has its zero value.
type Grant struct {
	// Token is the fencing token, at least 1 unless Info.Fencing is FencingNone. It MUST be
	// greater than every token granted before for the same name, through any driver, and
	// greater than the reserved ones.
	Token uint64

	// Tokens is how many consecutive tokens, from Token on, belong to this lease. 0 means 1.
	Tokens int

	// Start is our clock just before the request was sent that led to the grant: a moment at or
	// before the one at which the store's TTL began to run. It MUST NOT be later. Where
	// the tenure is a session, it may be earlier by a sixth of SessionTTL.
	Start Instant

	// TTL is the lease's length counted from Start, if the store chose another length than the
	// request asked for (a session's timeout). Zero means Request.TTL.
	TTL time.Duration

	// TellsWanted means that the driver calls Request.OnWanted once another process waits for this
	// lock.
	TellsWanted bool
}

// A Renewal is the answer to the renewal of one lease. Its zero value is not a success.
type Renewal struct {
	// Start is our clock just before the request was sent, as in Grant. It is set if, and only
	// if, Err is nil.
	Start Instant

	// Err is nil if the lease lasts its TTL from Start; it matches ErrLost if the lease has
	// certainly ended.
	Err error
}
