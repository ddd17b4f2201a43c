package wire

import (
	"fmt"
	"strings"
	"time"
)

// problemBase begins the types of problems. It is the page that explains them.
const problemBase = "https://github.com/sniblock/snib/blob/main/docs/serve.md#"

// The types of problems, without what all of them begin with. They do not change.
const (
	ProblemInvalid     = "invalid"              // 400
	ProblemMissing     = "unauthenticated"      // 401
	ProblemForbidden   = "forbidden"            // 403
	ProblemPath        = "no-such-path"         // 404
	ProblemMethod      = "method-not-allowed"   // 405
	ProblemChanged     = "changed"              // 409
	ProblemKind        = "other-kind"           // 409
	ProblemRepeated    = "repeated"             // 409
	ProblemStale       = "stale"                // 409
	ProblemSameToken   = "same-token"           // 409
	ProblemLost        = "lost"                 // 410
	ProblemWithdrawn   = "withdrawn"            // 410
	ProblemTooLarge    = "too-large"            // 413
	ProblemContentType = "content-type"         // 415
	ProblemHeld        = "held"                 // 423
	ProblemQuota       = "quota"                // 429
	ProblemInternal    = "internal"             // 500
	ProblemUnsupported = "unsupported"          // 501
	ProblemUnavailable = "unavailable"          // 503
	ProblemFull        = "too-many-connections" // 503
	ProblemDraining    = "draining"             // 503
	ProblemAudit       = "audit-unavailable"    // 503
)

// A Problem is an answer that is not what the request asked for, as RFC 9457 describes it.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	RetryAfter int64    `json:"retry_after_ms,omitempty"` // more exact than the header Retry-After
	Holders    []Holder `json:"holders,omitempty"`        // of a lock that is held
	Mark       *Mark    `json:"mark,omitempty"`           // of a resource that refuses a hold
}

// NewProblem returns a problem of one of the types above.
func NewProblem(kind, detail string, retryAfter time.Duration) *Problem {
	status, title := describe(kind)
	return &Problem{Type: problemBase + kind, Title: title, Status: status, Detail: detail, RetryAfter: Millis(retryAfter)}
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

// describe returns the status and the title of a type.
func describe(kind string) (status int, title string) {
	switch kind {
	case ProblemInvalid:
		return 400, "the request is invalid"
	case ProblemMissing:
		return 401, "credentials are missing"
	case ProblemForbidden:
		return 403, "this is not allowed"
	case ProblemPath:
		return 404, "there is nothing at this path"
	case ProblemMethod:
		return 405, "the path has another method"
	case ProblemChanged:
		return 409, "the holder has changed"
	case ProblemKind:
		return 409, "the lock is of another kind"
	case ProblemRepeated:
		return 409, "a later request took over the place"
	case ProblemStale:
		return 409, "stale fencing token"
	case ProblemSameToken:
		return 409, "two holds have the same fencing token"
	case ProblemLost:
		return 410, "the lock was lost"
	case ProblemWithdrawn:
		return 410, "the request was withdrawn"
	case ProblemTooLarge:
		return 413, "the request is too large"
	case ProblemContentType:
		return 415, "the content type must be " + TypeJSON
	case ProblemHeld:
		return 423, "the lock is held"
	case ProblemQuota:
		return 429, "there are too many requests"
	case ProblemUnsupported:
		return 501, "the store can't do this"
	case ProblemUnavailable:
		return 503, "the store is unavailable"
	case ProblemFull:
		return 503, "the server has no connection left"
	case ProblemDraining:
		return 503, "this replica is shutting down"
	case ProblemAudit:
		return 503, "the audit log can't be written"
	}
	return 500, "internal error"
}
