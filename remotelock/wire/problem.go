package wire

import (
	"fmt"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// problemBase begins the types of problems. It is the page that explains them.
const problemBase = "https://github.com/sniblock/snib/blob/main/docs/serve.md#"

// The types of problems, without what all of them begin with. They do not change.
const (
	ProblemInvalid     = "invalid"
	ProblemMissing     = "unauthenticated"
	ProblemForbidden   = "forbidden"
	ProblemPath        = "no-such-path"
	ProblemMethod      = "method-not-allowed"
	ProblemKind        = "other-kind"
	ProblemRepeated    = "repeated"
	ProblemStale       = "stale"
	ProblemSameToken   = "same-token"
	ProblemLost        = "lost"
	ProblemWithdrawn   = "withdrawn"
	ProblemTooLarge    = "too-large"
	ProblemContentType = "content-type"
	ProblemHeld        = "held"
	ProblemQuota       = "quota"
	ProblemInternal    = "internal"
	ProblemUnavailable = "unavailable"
	ProblemFull        = "too-many-connections"
	ProblemGrace       = "grace"
	ProblemDraining    = "draining"
	ProblemOtherStore  = "other-store"
	ProblemAudit       = "audit-unavailable"
)

// A Problem is an answer that is not what the request asked for, as RFC 9457 describes it.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	RetryAfter int64    `json:"retry_after_ms,omitempty"` // more exact than the header Retry-After
	Holders    []Holder `json:"holders,omitempty"`        // of a lock that is held
}

// NewProblem returns a problem of one of the types above.
func NewProblem(kind, detail string, retryAfter time.Duration) *Problem {
	as := problems[kind]
	return &Problem{Type: problemBase + kind, Title: as.title, Status: as.status, Detail: detail,
		RetryAfter: Millis(retryAfter)}
}

// Kind returns the type without what all types begin with, or "" for a type of somebody else.
func (p *Problem) Kind() string {
	kind, ok := strings.CutPrefix(p.Type, problemBase)
	if !ok {
		return ""
	}
	return kind
}

// Error implements the error interface.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return fmt.Sprintf("the lock service answers %d, %s", p.Status, p.Title)
	}
	return p.Detail
}

// Is makes a problem match [driver.ErrFull] if it says so.
func (p *Problem) Is(target error) bool { return target == driver.ErrFull && p.Kind() == ProblemFull }

// problems has the status and the title of each type.
var problems = map[string]struct {
	status int
	title  string
}{
	ProblemInvalid:     {400, "the request is invalid"},
	ProblemMissing:     {401, "credentials are missing"},
	ProblemForbidden:   {403, "this is not allowed"},
	ProblemPath:        {404, "there is nothing at this path"},
	ProblemMethod:      {405, "the path has another method"},
	ProblemKind:        {409, "the lock is of another kind"},
	ProblemRepeated:    {409, "a later request took over the place"},
	ProblemStale:       {409, "stale fencing token"},
	ProblemSameToken:   {409, "two holds have the same fencing token"},
	ProblemLost:        {410, "the lock was lost"},
	ProblemWithdrawn:   {410, "the request was withdrawn"},
	ProblemTooLarge:    {413, "the request is too large"},
	ProblemContentType: {415, "the content type must be " + TypeJSON},
	ProblemHeld:        {423, "the lock is held"},
	ProblemQuota:       {429, "there are too many requests"},
	ProblemUnavailable: {503, "the store is unavailable"},
	ProblemFull:        {503, "the server has no connection left"},
	ProblemGrace:       {503, "the store grants nothing yet"},
	ProblemDraining:    {503, "this replica is shutting down"},
	ProblemOtherStore:  {503, "the service has another store"},
	ProblemAudit:       {503, "the audit log can't be written"},
	ProblemInternal:    {500, "internal error"},
}
