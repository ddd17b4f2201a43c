package fence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/sniblock/snib/driver"
)

// The headers in which marks go over HTTP. There is no standard for them.
const (
	// Header is that of requests. Its value is the percent-encoded name of the lock, the token and the owner:
	//
	//	Fencing-Token: account%2F42;token=1763700000000000;owner=9f86d081884c7d659a2feaa0c55ad015
	Header = "Fencing-Token"

	// HeaderHighest is that of answers with status 409: the greatest token that has been there.
	HeaderHighest = "Fencing-Token-Highest"
)

// maxHeader bounds the value of [Header]: a name of the greatest length, each byte of it encoded, and what follows.
const maxHeader = 3*driver.MaxName + len(";token=") + 19 + len(";owner=") + ownerDigits

// Header returns the mark as the value of [Header].
func (m Mark) Header() string {
	return url.QueryEscape(m.Lock) + ";token=" + strconv.FormatUint(m.Token, 10) + ";owner=" + m.Owner
}

// ParseHeader is the inverse of [Mark.Header], and takes nothing else: the error says what is wrong, and matches [driver.ErrInvalid].
func ParseHeader(value string) (Mark, error) {
	bad := func(why string) (Mark, error) {
		return Mark{}, fmt.Errorf("%w header %s: %s; want NAME;token=NUMBER;owner=DIGITS", driver.ErrInvalid, Header, why)
	}
	if len(value) > maxHeader {
		return bad(fmt.Sprintf("it has %d bytes, and at most %d make sense", len(value), maxHeader))
	}
	name, rest, found := strings.Cut(value, ";token=")
	if !found {
		return bad("it has no token")
	}
	number, owner, found := strings.Cut(rest, ";owner=")
	if !found {
		return bad("it has no owner")
	}
	token, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return bad("the token is no number from 1 to 2^63-1")
	}
	lock, err := url.QueryUnescape(name)
	if err != nil {
		return bad("the name is not percent-encoded")
	}
	m := Mark{Lock: lock, Token: token, Owner: owner}
	if err = m.check(); err != nil {
		return bad(err.Error())
	}
	if m.Header() != value {
		return bad("there is another way to write the same, and only that one is right: " + m.Header())
	}
	return m, nil
}

// A Transport adds the hold's mark to each request. Give it to an [http.Client] of one hold:
//
//	client := &http.Client{Transport: fence.Transport{Hold: lock}}
//
// A [Server] that answers claims what it guards with the first request, also if that one only reads.
type Transport struct {
	Hold Hold
	Base http.RoundTripper // [http.DefaultTransport] if nil
}

// RoundTrip implements [http.RoundTripper]. It sends nothing if the hold has no fencing token.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	m, err := Of(t.Hold)
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set(Header, m.Header())
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	return base.RoundTrip(r)
}

// CheckResponse returns a *[RefusedError] if a [Server] refused the hold, and else nil.
func CheckResponse(h Hold, r *http.Response) error {
	if r.StatusCode != http.StatusConflict || r.Header.Get(HeaderHighest) == "" {
		return nil
	}
	m, err := Of(h)
	if err != nil {
		return err
	}
	highest, err := strconv.ParseUint(r.Header.Get(HeaderHighest), 10, 63)
	if err != nil {
		return fmt.Errorf("the answer's header %s is %q, and no number", HeaderHighest, r.Header.Get(HeaderHighest))
	}
	return &RefusedError{Mark: m, Last: Mark{Lock: m.Lock, Token: highest}}
}

// A Server lets requests through that carry the mark of the last hold on the lock, or of a later one. To others it answers
//
//   - 428 Precondition Required without [Header],
//   - 400 Bad Request if that is malformed, or is about another lock than the one that guards this resource,
//   - 409 Conflict, with [HeaderHighest], if a later hold has been there, or another one with the same token, and
//   - 500 Internal Server Error if the guard itself fails,
//
// each with the reason in the body. Requests under one lock go through one at a time, and a request that reads is a claim as well.
type Server struct {
	// Guard keeps the marks. It must last as long as the resource does: [Memory] is for resources in this process, [SQL] and
	// [Dir] for others.
	Guard Guard

	// Lock returns the name of the lock that guards what a request is about. The client has no say in that: else it could show
	// the mark of any lock that it has.
	Lock func(*http.Request) string

	// Log is told of conflicts, and of failures of the guard; nobody is if it is nil.
	Log *slog.Logger
}

// Wrap returns a handler that lets through to next.
func (s Server) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, status, err := s.mark(r)
		if err != nil {
			http.Error(w, err.Error(), status)
			return
		}
		served := false
		err = s.Guard.Do(r.Context(), m, func(ctx context.Context) error {
			served = true
			next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, markKey{}, m)))
			return nil
		})
		if err != nil {
			s.refuse(w, r, m, err, served)
		}
	})
}

// mark reads what the request says, and the status with which to answer if that is no good.
func (s Server) mark(r *http.Request) (Mark, int, error) {
	values := r.Header.Values(Header)
	switch len(values) {
	case 0:
		return Mark{}, http.StatusPreconditionRequired, fmt.Errorf("header %s is missing: this resource is guarded by a lock", Header)
	case 1:
	default:
		return Mark{}, http.StatusBadRequest, fmt.Errorf("header %s stands %d times; want it once", Header, len(values))
	}
	m, err := ParseHeader(values[0])
	if err != nil {
		return Mark{}, http.StatusBadRequest, err
	}
	if want := s.Lock(r); m.Lock != want {
		return Mark{}, http.StatusBadRequest, fmt.Errorf("header %s is about the lock %q; this resource is guarded by %q", Header, m.Lock, want)
	}
	return m, 0, nil
}

// refuse answers for a guard that did not let the request in, or could not.
func (s Server) refuse(w http.ResponseWriter, r *http.Request, m Mark, err error, served bool) {
	var refused *RefusedError
	known := errors.As(err, &refused)
	if s.Log != nil && (!known || errors.Is(err, ErrConflict)) {
		s.Log.ErrorContext(r.Context(), "fence", "lock", m.Lock, "token", m.Token, "error", err)
	}
	switch {
	case served: // next has answered, and the guard could not keep what it did
		panic(http.ErrAbortHandler)
	case known:
		w.Header().Set(HeaderHighest, strconv.FormatUint(refused.Last.Token, 10))
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		http.Error(w, "the guard of the resource failed", http.StatusInternalServerError) // err may tell what is nobody's business
	}
}

type markKey struct{}

// FromContext returns the mark with which a request was let through, for use in a handler behind [Server.Wrap].
func FromContext(ctx context.Context) (Mark, bool) {
	m, ok := ctx.Value(markKey{}).(Mark)
	return m, ok
}
