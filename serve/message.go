package serve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
)

// maxBody is the greatest size of a request's body.
const maxBody = 1 << 20

// readTimeout is how long a client may take to send a body, and writeTimeout how long to take in
// an answer or a part of one.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = 10 * time.Second
)

// limitRead gives a client readTimeout to send the body of its request, if it has one. Whoever does
// not read the body leaves the deadline as it is: net/http reads the rest.
func limitRead(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout)) // a writer of tests has no deadlines
	}
}

// limitWrite gives a client writeTimeout to take in what is written next. Over HTTP/2, the request
// ends then even if nothing is written, so a pause that may be long begins with liftWrite.
func limitWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // likewise
}

// liftWrite ends the limit of limitWrite.
func liftWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // likewise
}

// invalidf returns a problem with a request.
func invalidf(format string, args ...any) error {
	return wire.NewProblem(wire.ProblemInvalid, fmt.Sprintf(format, args...), 0)
}

// readBody reads the body of a request into message.
func readBody(w http.ResponseWriter, r *http.Request, message any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != wire.TypeJSON {
		return wire.NewProblem(wire.ProblemContentType, "send JSON with the header Content-Type: "+wire.TypeJSON+"; with curl, use --json", 0)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return wire.NewProblem(wire.ProblemTooLarge, fmt.Sprintf("the body may have %d bytes", tooLarge.Limit), 0)
	case err != nil:
		return invalidf("the body could not be read")
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // else a request that waits would end then
	return decode(body, message)
}

// wholeEscapes matches JSON in which no escape is half of a surrogate pair.
var wholeEscapes = regexp.MustCompile(`(?is)^([^\\]|\\[^u]|\\u[^d]...|\\ud[0-7]..|\\ud[89ab]..\\ud[c-f]..)*$`)

// decode parses one JSON document strictly.
func decode(body []byte, message any) error {
	// The decoder would replace what is invalid, or half of a character: that would be another name.
	if !utf8.Valid(body) || bytes.Contains(body, []byte(`\u`)) && !wholeEscapes.Match(body) {
		return invalidf("the body is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(message); err != nil {
		return invalidf("the body is not what is expected here: %s", explainJSON(err))
	}
	if len(bytes.TrimSpace(body[d.InputOffset():])) > 0 {
		return invalidf("something follows the JSON object in the body")
	}
	return checkNames(json.NewDecoder(bytes.NewReader(body)), body)
}

// checkNames refuses a field of the next value whose name is not as the API writes it, or that is
// given twice. The decoder takes NAME for name, and the last of two, which a proxy that looks at
// requests may not. The value was parsed before, so there are no errors.
func checkNames(d *json.Decoder, document []byte) error {
	t, _ := d.Token()
	begin, ok := t.(json.Delim)
	for seen := map[string]bool{}; ok && d.More(); {
		if begin == '{' {
			t, _ := d.Token()
			name := t.(string)
			isPlain := document[int(d.InputOffset())-len(name)-len(`""`)] == '"' // else it has escapes
			if seen[name] || !isPlain || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
				return invalidf("the names of fields are in lower case, and each is given once")
			}
			seen[name] = true
		}
		if err := checkNames(d, document); err != nil {
			return err
		}
	}
	if ok {
		_, _ = d.Token() // the end
	}
	return nil
}

// explainJSON returns an error of the decoder without the names of Go types.
func explainJSON(err error) string {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		return fmt.Sprintf("%s can't be a %s", wrong.Field, wrong.Value)
	case errors.As(err, &wrong):
		return fmt.Sprintf("it can't be a %s", wrong.Value)
	case errors.Is(err, io.EOF):
		return "it is empty"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "it ends early"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

func writeJSON(w http.ResponseWriter, status int, message any) error {
	return writeDocument(w, status, wire.TypeJSON, message)
}

func writeDocument(w http.ResponseWriter, status int, contentType string, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	writeText(w, status, contentType, append(text, '\n'))
	return nil
}

func writeText(w http.ResponseWriter, status int, contentType string, text []byte) {
	limitWrite(w)
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // a client that has gone does not get it
}

func writeProblem(w http.ResponseWriter, p *wire.Problem) {
	h := w.Header()
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(float64(p.RetryAfter)/1000)), 10))
	}
	switch p.Kind() {
	case wire.ProblemMissing:
		h.Set("WWW-Authenticate", `Bearer realm="snib"`)
	case wire.ProblemDraining:
		h.Set("Connection", "close")
	}
	_ = writeDocument(w, p.Status, wire.TypeProblem, p) // a problem can be encoded
}

// problemOf returns the problem that answers a request which failed with err. It leaves out details
// that are not known to be fit for clients.
func (s *Service) problemOf(err error) *wire.Problem {
	var problem *wire.Problem
	switch {
	case errors.As(err, &problem):
		if problem.Kind() == wire.ProblemAudit {
			s.faults.printf("fault: %v", err)
		}
		return problem
	case errors.Is(err, driver.ErrHeld):
		return wire.NewProblem(wire.ProblemHeld, "", time.Second)
	case errors.Is(err, driver.ErrLost):
		return wire.NewProblem(wire.ProblemLost, "there is no such hold: it has ended, by its TTL, a release, or by force", 0)
	case errors.Is(err, driver.ErrKind):
		return wire.NewProblem(wire.ProblemKind, err.Error(), 0)
	case errors.Is(err, driver.ErrInvalid):
		return wire.NewProblem(wire.ProblemInvalid, err.Error(), 0)
	case errors.Is(err, context.Canceled): // the client has gone, which says nothing about the store
		return wire.NewProblem(wire.ProblemUnavailable, "the request was given up", time.Second)
	case isNoAnswer(err):
		return s.unavailable(err)
	case errors.Is(err, driver.ErrClosed):
		return errDraining()
	}
	s.fault(err)
	return wire.NewProblem(wire.ProblemInternal, "", 0)
}

// storeName returns the name in the store of the lock that p calls name.
func storeName(p *Principal, name string) (string, error) {
	if err := driver.CheckName(name); err != nil {
		return "", err
	}
	if p.Prefix == "" {
		return name, nil
	}
	full := p.Prefix + name
	if len(full) > driver.MaxName {
		return "", invalidf("name: it has %d bytes; at most %d are allowed here", len(name), driver.MaxName-len(p.Prefix))
	}
	return full, nil
}

// checkText reports what is wrong with a text of a request.
func checkText(field, text string, most int) error {
	if len(text) > most {
		return invalidf("%s: it has %d bytes; at most %d are allowed", field, len(text), most)
	}
	return nil
}

// holderOf returns the holder that a message describes.
func holderOf(p wire.Process) (driver.Holder, error) {
	if err := errors.Join(checkText("label", p.Label, wire.MaxLabel), checkText("host", p.Host, wire.MaxLabel)); err != nil {
		return driver.Holder{}, err
	}
	h := driver.Holder{Host: p.Host, PID: p.PID, Label: p.Label}
	switch p.Kind {
	case "", wire.KindProcess:
	case wire.KindDetached:
		h.Kind = driver.KindDetached
	default:
		return h, invalidf("kind: it must be %s or %s; reserve makes a reservation", wire.KindProcess, wire.KindDetached)
	}
	if p.PID < 0 {
		return h, invalidf("pid: it can't be negative")
	}
	return h, nil
}

// ttlOf returns the TTL of a request.
func ttlOf(ms int64) (time.Duration, error) {
	switch {
	case ms < 0:
		return 0, invalidf("ttl_ms: it can't be negative")
	case ms == 0:
		return wire.DefaultTTL, nil
	}
	return wire.Duration(ms), nil
}

// checkTTL reports a TTL that the store does not take. A driver need not check what the core has
// checked.
func (s *Service) checkTTL(ttl time.Duration) error {
	least, most := s.info.MinTTL, cmp.Or(s.info.MaxTTL, driver.LongestTTL)
	if ttl >= least && ttl <= most {
		return nil
	}
	return invalidf("ttl_ms: this store takes from %d to %d", wire.Millis(least), most.Milliseconds())
}
