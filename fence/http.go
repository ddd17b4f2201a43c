package fence

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// The headers that carry marks over HTTP. There is no standard for them.
const (
	// Header is the header of requests. Its value is the percent-encoded name of the lock, the
	// token and the owner:
	//
	//	Fencing-Token: account%2F42;token=1763700000000000;owner=9f86d081884c7d659a2feaa0c55ad015
	Header = "Fencing-Token"

	// HeaderHighest is the header of answers with status 409: the greatest token that has been
	// there.
	HeaderHighest = "Fencing-Token-Highest"
)

// maxHeader is the greatest length of the value of [Header]: a name of the greatest length,
// each byte of it encoded, the token and the owner.
const maxHeader = 3*driver.MaxName + len(";token=") + 19 + len(";owner=") + ownerDigits

// Header returns the mark as the value of [Header].
func (m Mark) Header() string {
	return url.QueryEscape(m.Lock) + ";token=" + strconv.FormatUint(m.Token, 10) + ";owner=" + m.Owner
}

// ParseHeader is the inverse of [Mark.Header], and accepts nothing else: the error says what is
// wrong, and matches [driver.ErrInvalid].
func ParseHeader(value string) (Mark, error) {
	bad := func(why string) (Mark, error) {
		return Mark{}, driver.Invalidf("header %s: %s; want NAME;token=NUMBER;owner=DIGITS", Header, why)
	}
	if len(value) > maxHeader {
		return bad(fmt.Sprintf("it has %d bytes; at most %d are allowed", len(value), maxHeader))
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
		return bad("the token is not a number from 1 to 2^63-1")
	}
	lock, err := url.QueryUnescape(name)
	if err != nil {
		return bad("the name is not percent-encoded")
	}
	m := Mark{Lock: lock, Token: token, Owner: owner}
	if err = m.Check(); err != nil {
		return bad(err.Error())
	}
	if m.Header() != value {
		return bad("only one way to write this value is allowed: " + m.Header())
	}
	return m, nil
}

// A Transport adds the hold's mark to each request. Use it in an [http.Client] for one hold:
//
//	client := &http.Client{Transport: fence.Transport{Hold: lock}}
//
// With the first request, also if that one only reads, the [Server] claims what it guards. A
// redirect to another host, or from https to http, is followed without the mark.
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
	r.Header.Del(Header)
	if staysWithHost(r) {
		r.Header.Set(Header, m.Header())
	}
	return cmp.Or(t.Base, http.DefaultTransport).RoundTrip(r)
}

// staysWithHost reports whether a request goes to the host of the first request in a series of
// redirects, and not from https to http.
func staysWithHost(r *http.Request) bool {
	first := r
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	return r.URL.Host == first.URL.Host && (r.URL.Scheme == first.URL.Scheme || r.URL.Scheme == "https")
}

// CheckResponse returns a *[RefusedError] if a [Server] refused the hold, and nil if the response
// is no refusal. Any other error means that the refusal can't be read, or that h has no mark.
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
		return fmt.Errorf("the header %s of the response is %q, which is not a number", HeaderHighest,
			r.Header.Get(HeaderHighest))
	}
	return &RefusedError{Mark: m, Last: Mark{Lock: m.Lock, Token: highest}}
}

// The defaults of a [Server].
const (
	DefaultMaxToken = 1<<56 - 1        // above the tokens of all backends of snib
	DefaultMaxBody  = 1 << 20          // bytes
	DefaultTimeout  = 10 * time.Second // for a body to arrive, and again for the rest
)

// ClockToken is a [Server.MaxToken] for tokens that come from a clock, as those of all backends
// but etcdlock and zklock do: the present time in microseconds, and 25 hours more for clocks
// that differ.
func ClockToken() uint64 { return driver.NextToken(0, time.Now().Add(25*time.Hour)) }

// A Server lets requests through that carry the mark of the last hold on the lock, or of a
// later one. To others it answers
//
//   - 428 Precondition Required without [Header],
//   - 400 Bad Request if the header is malformed, names another lock than the one that guards
//     this resource, or has a token above MaxToken,
//   - 404 Not Found if Lock returns "",
//   - 408 Request Timeout and 413 Content Too Large if the body is too slow or too long,
//   - 409 Conflict, with [HeaderHighest], if a later hold has been there, or another one with
//     the same token,
//   - 503 Service Unavailable if other requests are let in for all of Timeout, and
//   - 500 Internal Server Error if the guard itself fails,
//
// each with the reason in the body, but not with the name of the lock. Requests under one lock
// go through one at a time, and a request that only reads is a claim as well.
//
// A mark is no secret, and proves nothing: anyone who may send a request may claim the resource
// with any token up to MaxToken, and all holds with lesser tokens are refused from then on. So
// put authentication and authorization before the Server:
//
//	mux.Handle("/accounts/", authenticated(server.Wrap(accounts)))
//
// A mark can be too great because a client lied or the lock's store lost its memory. Repair it
// where the Guard keeps it, while no hold is active: delete or lower the row of the lock in the
// table of [SQL], or restart the process with [Memory].
type Server struct {
	// Guard keeps the marks. It must last as long as the resource does: [Memory] is for
	// resources in this process, [SQL] for others.
	Guard Guard

	// Lock returns the name of the lock that guards the resource of a request, or "" if there
	// is no such resource. The client must not choose the lock: else it could show the mark of
	// any lock that it holds. Guards remember each name for ever, so if a client can make up a
	// part of the name, such as a number in the path, look it up first.
	Lock func(*http.Request) string

	// MaxToken returns the greatest token that a hold can have. It limits the harm of a wrong
	// mark: with [ClockToken] the resource is closed for about a day at most. If MaxToken is
	// nil, the limit is DefaultMaxToken.
	MaxToken func() uint64

	// MaxBody is the length of the longest body, in bytes. The body is read before the request
	// is let in, so a client that sends slowly keeps nobody out. Zero or less means DefaultMaxBody.
	MaxBody int64

	// Timeout limits how long a request keeps the next hold out: after it the context of the
	// handler ends, and so does writing the answer. A handler that ignores its context is not
	// stopped, because its effects could not be undone. The body may take as long before. Zero
	// or less means DefaultTimeout.
	Timeout time.Duration

	// Log receives conflicts, failures of the guard, and marks for the wrong lock or above
	// MaxToken. If Log is nil, nothing is logged.
	Log *slog.Logger
}

// Wrap returns a handler that passes the requests that are let in to next.
func (s Server) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, status, err := s.readMark(r)
		if err == nil {
			status, err = s.readBody(w, r)
		}
		if err != nil {
			http.Error(w, err.Error(), status)
			return
		}
		ctx, cancel := context.WithTimeoutCause(r.Context(), s.timeout(), errTimeout)
		defer cancel()
		served := false
		err = s.Guard.Do(ctx, m, func(ctx context.Context) error {
			served = true
			// The server removes the limit when it has answered. A writer of tests may have none.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.timeout()))
			next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, markKey{}, m)))
			return nil
		})
		if err != nil {
			s.refuse(w, r.WithContext(ctx), m, err, served)
		}
	})
}

const errTimeout driver.Sentinel = "the time for a guarded request is over"

func (s Server) timeout() time.Duration { return cmp.Or(max(s.Timeout, 0), DefaultTimeout) }

// readMark returns the mark of the request, or an error and the status with which to answer.
func (s Server) readMark(r *http.Request) (Mark, int, error) {
	values := r.Header.Values(Header)
	switch len(values) {
	case 0:
		return Mark{}, http.StatusPreconditionRequired, fmt.Errorf("header %s is missing: this resource is guarded by a lock",
			Header)
	case 1:
	default:
		return Mark{}, http.StatusBadRequest, fmt.Errorf("header %s occurs %d times; want it once", Header, len(values))
	}
	m, err := ParseHeader(values[0])
	if err != nil {
		return Mark{}, http.StatusBadRequest, err
	}
	most := uint64(DefaultMaxToken)
	if s.MaxToken != nil {
		most = s.MaxToken()
	}
	switch want := s.Lock(r); {
	case want == "":
		return Mark{}, http.StatusNotFound, errors.New("there is no such resource")
	case m.Lock != want:
		s.warn(r, m, "the mark is about another lock", "guard", want)
		return Mark{}, http.StatusBadRequest,
			fmt.Errorf("header %s is about another lock than the one that guards this resource", Header)
	case m.Token > most:
		s.warn(r, m, "the token is too large", "most", most)
		return Mark{}, http.StatusBadRequest, fmt.Errorf("header %s has a token that no hold can have", Header)
	}
	return m, 0, nil
}

func (s Server) warn(r *http.Request, m Mark, why string, args ...any) {
	if s.Log != nil {
		s.Log.WarnContext(r.Context(), "fence: "+why, append([]any{"lock", m.Lock, "token", m.Token}, args...)...)
	}
}

// readBody reads the body before the request is let in, and keeps nobody out while it does.
// With an error it returns the status with which to answer.
func (s Server) readBody(w http.ResponseWriter, r *http.Request) (status int, err error) {
	if r.Body == nil || r.Body == http.NoBody {
		return 0, nil
	}
	most := cmp.Or(max(s.MaxBody, 0), DefaultMaxBody)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.timeout())) // a writer of tests may be unable to
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return http.StatusRequestEntityTooLarge, fmt.Errorf("the body has more than %d bytes", most)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return http.StatusRequestTimeout, fmt.Errorf("the body did not arrive within %v", s.timeout())
	case err != nil:
		return http.StatusBadRequest, errors.New("the body did not arrive")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return 0, nil
}

// refuse answers if the guard did not let the request in, or failed. The context of r is that of
// the guard, whose errors may not say that it is over. If served is true, next has answered
// already.
func (s Server) refuse(w http.ResponseWriter, r *http.Request, m Mark, err error, served bool) {
	refused, isRefusal := errors.AsType[*RefusedError](err)
	if s.Log != nil && (!isRefusal || errors.Is(err, ErrConflict)) {
		s.Log.ErrorContext(r.Context(), "fence", "lock", m.Lock, "token", m.Token, "error", err)
	}
	switch {
	case served: // next has answered, but the guard could not commit what it did
		panic(http.ErrAbortHandler)
	case isRefusal:
		w.Header().Set(HeaderHighest, strconv.FormatUint(refused.Last.Token, 10))
		http.Error(w, refused.reason(), http.StatusConflict)
	case r.Context().Err() != nil:
		http.Error(w, "another request is being served", http.StatusServiceUnavailable)
	default:
		// The text of err may be confidential.
		http.Error(w, "the guard of the resource failed", http.StatusInternalServerError)
	}
}

type markKey struct{}

// FromContext returns the mark with which a request was let through, for use in a handler
// behind [Server.Wrap].
func FromContext(ctx context.Context) (Mark, bool) {
	m, ok := ctx.Value(markKey{}).(Mark)
	return m, ok
}
