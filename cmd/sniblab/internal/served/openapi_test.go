package served

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve"
)

// TestOpenAPI gets every answer that the description of the API has, and compares it with the
// description. An answer that is not described fails, as does a description of an answer that
// did not come.
func TestOpenAPI(t *testing.T) {
	restarted := newAPI(t, restartedStore{memlock.New()})
	if status := restarted.ask(http.MethodGet, wire.PathReady, "", nil); status != http.StatusOK {
		t.Errorf("GET %s in a grace period = %d, want 200", wire.PathReady, status)
	}
	api := newAPI(t, memlock.New())
	for _, c := range apiCases {
		t.Run(strings.TrimPrefix(c.path, "/")+" "+strconv.Itoa(c.status), func(t *testing.T) {
			api.t = t
			if c.before != nil {
				c.before(api)
			}
			if status := api.ask(c.method, c.path, c.body, c.header); status != c.status {
				t.Errorf("%s %s %s = %d, want %d", c.method, c.path, c.body, status, c.status)
			}
		})
	}
	api.t = t
	api.listen()
	for _, op := range api.doc.operations() {
		for _, status := range []int{401, 403, 429, 500} {
			if op.describes(status) && op.authorized() {
				api.check(op, status, http.Header{"X-Answer": {strconv.Itoa(status)}})
			}
		}
		if op.describes(405) {
			api.method(op)
		}
	}
	if err := api.service.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, op := range api.doc.operations() {
		if op.describes(503) {
			api.check(op, 503, nil)
		}
	}
	for _, missing := range api.doc.unseen() {
		t.Errorf("%s is described, and no test gets it", missing)
	}
}

// An apiCase is a request and the status of its answer.
type apiCase struct {
	status       int
	method, path string
	body         string
	header       http.Header
	before       func(*api)
}

var tooLarge = strings.Repeat(" ", 1<<20+1)

var apiCases = []apiCase{
	{200, "POST", "/v1/acquire", `{"name":"made-up","tokens":8}`, nil, nil},
	{200, "POST", "/v1/acquire", `{"name":"a","id":"o-------------------","ttl_ms":60000,"host":"web-1","pid":7,"label":"deploy","kind":"detached"}`, nil, nil},
	{423, "POST", "/v1/acquire", `{"name":"a","id":"other---------------"}`, nil, nil},
	{202, "POST", "/v1/acquire", `{"name":"a","id":"other---------------","wait_ms":1}`, nil, nil},
	{400, "POST", "/v1/acquire", `{"name":""}`, nil, nil},
	{400, "POST", "/v1/acquire", `{"name":"a","surprise":1}`, nil, nil},
	{400, "POST", "/v1/acquire", `{"name":`, nil, nil},
	{409, "POST", "/v1/acquire", `{"name":"a","id":"third---------------","slots":3}`, nil, nil},
	{413, "POST", "/v1/acquire", tooLarge, nil, nil},
	{415, "POST", "/v1/acquire", `{"name":"a"}`, http.Header{"Content-Type": {"text/plain"}}, nil},
	{200, "POST", "/v1/renew", `{"name":"a","id":"o-------------------","ttl_ms":60000}`, nil, nil},
	{200, "POST", "/v1/renew", `{"leases":[{"name":"a","id":"o-------------------"},{"name":"a","id":"nobody--------------"}]}`, nil, nil},
	{410, "POST", "/v1/renew", `{"name":"a","id":"nobody--------------"}`, nil, nil},
	{400, "POST", "/v1/renew", `{"name":"a"}`, nil, nil},
	{413, "POST", "/v1/renew", tooLarge, nil, nil},
	{415, "POST", "/v1/renew", `{}`, http.Header{"Content-Type": {"text/plain"}}, nil},
	{200, "GET", "/v1/lock?name=a", "", nil, nil},
	{200, "GET", "/v1/lock?name=free", "", nil, nil},
	{400, "GET", "/v1/lock", "", nil, nil},
	{200, "GET", "/v1/locks?prefix=a", "", nil, nil},
	{400, "GET", "/v1/locks?limit=1", "", nil, nil},
	{400, "GET", "/v1/events?format=odd", "", nil, nil},
	{200, "GET", "/v1/store", "", nil, nil},
	{400, "GET", "/v1/store?surprise=1", "", nil, nil},
	{204, "POST", "/v1/withdraw", `{"name":"a","id":"other---------------"}`, nil, nil},
	{410, "POST", "/v1/acquire", `{"name":"a","id":"other---------------","wait_ms":1}`, nil, nil},
	{400, "POST", "/v1/withdraw", `{"name":"a"}`, nil, nil},
	{413, "POST", "/v1/withdraw", tooLarge, nil, nil},
	{415, "POST", "/v1/withdraw", `{}`, http.Header{"Content-Type": {"text/plain"}}, nil},
	{204, "POST", "/v1/label", `{"name":"a","id":"o-------------------","label":"roll back"}`, nil, nil},
	{410, "POST", "/v1/label", `{"name":"a","id":"nobody--------------","label":""}`, nil, nil},
	{400, "POST", "/v1/label", `[]`, nil, nil},
	{413, "POST", "/v1/label", tooLarge, nil, nil},
	{415, "POST", "/v1/label", `{}`, http.Header{"Content-Type": {"text/plain"}}, nil},
	{410, "POST", "/v1/break", `{"name":"a","token":9,"reason":"its host is gone"}`, nil, nil},
	{204, "POST", "/v1/break", `{"name":"a","token":TOKEN,"reason":"its host is gone"}`, nil, nil},
	{400, "POST", "/v1/break", `{"name":"a","token":9}`, nil, nil},
	{413, "POST", "/v1/break", tooLarge, nil, nil},
	{415, "POST", "/v1/break", `{}`, http.Header{"Content-Type": {"text/plain"}}, nil},
	{200, "POST", "/v1/acquire", `{"name":"r","id":"o-------------------","reserve":true,"label":"maintenance"}`, nil, nil},
	{200, "GET", "/v1/lock?name=r", "", nil, nil},
	{204, "POST", "/v1/label", `{"name":"r","token":TOKEN,"reserved":true,"label":"still maintenance"}`, nil, nil},
	{410, "POST", "/v1/label", `{"name":"r","token":9,"reserved":true,"label":"mine"}`, nil, nil},
	{204, "POST", "/v1/break", `{"name":"r","token":TOKEN,"reserved":true,"reason":"it is done"}`, nil, nil},
	{204, "POST", "/v1/fence", `{"resource":"disk","id":"o-------------------","token":7}`, nil, nil},
	{409, "POST", "/v1/fence", `{"resource":"disk","id":"o-------------------","token":6}`, nil, nil},
	{409, "POST", "/v1/fence", `{"resource":"disk","id":"other---------------","token":7}`, nil, nil},
	{400, "POST", "/v1/fence", `{"resource":"disk","id":"o-------------------"}`, nil, nil},
	{413, "POST", "/v1/fence", tooLarge, nil, nil},
	{415, "POST", "/v1/fence", `{}`, http.Header{"Content-Type": {"text/plain"}}, nil},
	{410, "POST", "/v1/release", `{"name":"a","id":"o-------------------"}`, nil, nil},
	{204, "POST", "/v1/release", `{"name":"b","id":"o-------------------"}`, nil, func(a *api) { a.ask("POST", "/v1/acquire", `{"name":"b","id":"o-------------------"}`, nil) }},
	{400, "POST", "/v1/release", `{"name":"a"}`, nil, nil},
	{413, "POST", "/v1/release", tooLarge, nil, nil},
	{415, "POST", "/v1/release", `{}`, http.Header{"Content-Type": {"text/plain"}}, nil},
	{200, "GET", "/v1/audit?limit=2", "", nil, nil},
	{400, "GET", "/v1/audit?limit=0", "", nil, nil},
	{200, "GET", "/v1/doctor", "", nil, nil},
	{400, "GET", "/v1/doctor?surprise=1", "", nil, nil},
	{200, "GET", "/v1/leaks", "", nil, nil},
	{400, "GET", "/v1/leaks?surprise=1", "", nil, nil},
	{200, "GET", "/metrics", "", nil, nil},
	{400, "GET", "/metrics?surprise=1", "", nil, nil},
	{200, "GET", "/healthz", "", nil, nil},
	{200, "GET", "/readyz", "", nil, nil},
}

// An api is a service whose answers are compared with its description.
type api struct {
	t       *testing.T
	service *serve.Service
	server  *httptest.Server
	doc     *document
	token   uint64 // of the last hold
}

// A restartedStore is a store in its grace period.
type restartedStore struct{ *memlock.Driver }

func (restartedStore) Acquire(context.Context, driver.Request) (driver.Lease, error) {
	return nil, driver.ErrUnavailable
}

func newAPI(t *testing.T, d driver.Driver) *api {
	s, err := serve.New(d, serve.Options{
		Access: answering{}, Audit: someEvents, Doctor: someFindings, Leaks: someLeaks, Fence: new(fence.Memory),
		Metrics:  http.HandlerFunc(someMetrics),
		Grace:    func(error) time.Duration { return time.Minute },
		Identity: func(context.Context) (string, error) { return "store", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(func() { server.Close(); _ = s.Drain(t.Context()); d.Close() })
	return &api{t: t, service: s, server: server, doc: parseDocument(t)}
}

// someEvents returns events with all fields, and with few.
func someEvents(*serve.Principal, int) []wire.AuditEvent {
	return []wire.AuditEvent{
		{
			Time: time.Now(), Event: "break", Outcome: "done", Who: "ops", Remote: "192.0.2.1", Verb: "break", Op: "break",
			Namespace: "shop", Name: "a", Token: 1 << 63, Reason: "its host is gone", LeftOut: 3,
		},
		{Time: time.Now(), Event: "refused", Remote: "192.0.2.1"},
	}
}

// someFindings returns findings with all fields, and with few.
func someFindings(context.Context) ([]wire.Finding, error) {
	return []wire.Finding{{Check: "eviction", Verdict: "unmet", Value: "allkeys-lru", Advice: "set noeviction"},
		{Check: "lock", Verdict: "ok", Value: "taken"}}, nil
}

// someLeaks returns leaks with all fields, and with few.
func someLeaks(context.Context) ([]wire.Leak, error) {
	return []wire.Leak{{Kind: "foreign", Name: "key", Problem: "no end", Library: "redsync", Unsure: true}, {Kind: "stuck", Name: "a", Problem: "nobody is served"}}, nil
}

// someMetrics answers as a handler of Prometheus does.
func someMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = io.WriteString(w, "up 1\n") // a client that has gone does not get it
}

// ask sends a request, compares the exchange with the description, and returns the status.
func (a *api) ask(method, path, body string, header http.Header) int {
	a.t.Helper()
	body = strings.ReplaceAll(body, "TOKEN", strconv.FormatUint(a.token, 10))
	resp := a.send(a.t.Context(), method, path, body, header)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	if err := a.doc.compare(resp.Request, []byte(body), resp, answer); err != nil {
		a.t.Errorf("%s %s %.200s: %v; the answer is %d %s", method, path, body, err, resp.StatusCode, answer)
	}
	var granted wire.Granted
	if resp.StatusCode == http.StatusOK && json.Unmarshal(answer, &granted) == nil && granted.Token > 0 {
		a.token = granted.Token
	}
	return resp.StatusCode
}

// send sends a request. The caller closes the body of the answer.
func (a *api) send(ctx context.Context, method, path, body string, header http.Header) *http.Response {
	a.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, a.server.URL+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", wire.TypeJSON)
	}
	maps.Copy(req.Header, header)
	resp, err := a.server.Client().Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	return resp
}

// listen compares the begin of the stream of events with the description.
func (a *api) listen() {
	a.t.Helper()
	if status := a.ask("POST", "/v1/acquire", `{"name":"seen","id":"o-------------------"}`, nil); status != http.StatusOK {
		a.t.Fatalf("POST /v1/acquire = %d", status)
	}
	ctx, cancel := context.WithCancel(a.t.Context())
	defer cancel()
	resp := a.send(ctx, http.MethodGet, wire.PathEvents, "", nil)
	defer resp.Body.Close()
	if kind := resp.Header.Get("Content-Type"); kind != wire.TypeLines {
		a.t.Errorf("the content type of events is %s, want %s", kind, wire.TypeLines)
	}
	a.doc.seen[operation{method: http.MethodGet, path: wire.PathEvents}.answer(resp.StatusCode)] = true
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if err := a.doc.check("#/components/schemas/Event", lines.Bytes()); err != nil {
			a.t.Errorf("%s: %v", lines.Bytes(), err)
		}
		if bytes.Contains(lines.Bytes(), []byte(`"ready"`)) {
			return
		}
	}
	a.t.Errorf("the stream ended before it was ready: %v", lines.Err())
}

// check gets an answer for which the request does not matter.
func (a *api) check(op operation, status int, header http.Header) {
	a.t.Helper()
	if got := a.ask(op.method, op.path, "{}", header); got != status {
		a.t.Errorf("%s %s = %d, want %d", op.method, op.path, got, status)
	}
}

// method sends a request with a method that the path does not have.
func (a *api) method(op operation) {
	a.t.Helper()
	resp := a.send(a.t.Context(), http.MethodPut, op.path, "", nil)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != op.method {
		a.t.Errorf("PUT %s = %d, Allow: %q; want 405, %q", op.path, resp.StatusCode, resp.Header.Get("Allow"), op.method)
	}
	a.doc.seen[op.answer(resp.StatusCode)] = true
}

// answering is an Authorizer that answers as the header X-Answer says.
type answering struct{}

func (answering) Authenticate(r *http.Request) (*serve.Principal, error) {
	switch r.Header.Get("X-Answer") {
	case "401":
		return nil, wire.NewProblem(wire.ProblemMissing, "", 0)
	case "403":
		return nil, wire.NewProblem(wire.ProblemForbidden, "", 0)
	case "429":
		return nil, wire.NewProblem(wire.ProblemQuota, "", time.Second)
	case "500":
		return nil, errors.New("an error that clients must not see")
	}
	return &serve.Principal{Name: "test"}, nil
}

func (answering) Begin(context.Context, *serve.Principal, serve.Action) (func(serve.Outcome), error) {
	return nil, nil
}

func (answering) May(*serve.Principal, serve.Verb, string) bool { return true }

// A document is a description in OpenAPI 3.1 that describes JSON only.
type document struct {
	paths    map[string]map[string]map[string]any // by path and method
	compiler *jsonschema.Compiler

	mu      sync.Mutex
	schemas map[string]*jsonschema.Schema // by pointer
	seen    map[string]bool               // answers
}

func parseDocument(t testing.TB) *document {
	t.Helper()
	text, err := os.ReadFile("../../../../serve/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	d := &document{
		paths: map[string]map[string]map[string]any{}, compiler: jsonschema.NewCompiler(),
		schemas: map[string]*jsonschema.Schema{}, seen: map[string]bool{},
	}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	if err := d.compiler.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	for path, methods := range doc.(map[string]any)["paths"].(map[string]any) {
		d.paths[path] = map[string]map[string]any{}
		for method, op := range methods.(map[string]any) {
			d.paths[path][strings.ToUpper(method)] = op.(map[string]any)
		}
	}
	return d
}

// An operation is a method of a path.
type operation struct {
	method, path string
	spec         map[string]any
}

func (d *document) operations() []operation {
	var all []operation
	for _, path := range slices.Sorted(maps.Keys(d.paths)) {
		for _, method := range slices.Sorted(maps.Keys(d.paths[path])) {
			all = append(all, operation{method, path, d.paths[path][method]})
		}
	}
	return all
}

// authorized reports whether an operation needs rights.
func (op operation) authorized() bool {
	_, open := op.spec["security"]
	return !open
}

func (op operation) describes(status int) bool {
	_, ok := op.spec["responses"].(map[string]any)[strconv.Itoa(status)]
	return ok
}

func (op operation) answer(status int) string {
	return fmt.Sprint(op.method, " ", op.path, ": ", status)
}

// unseen returns the answers that are described and did not come.
func (d *document) unseen() []string {
	var all []string
	for _, op := range d.operations() {
		for status := range op.spec["responses"].(map[string]any) {
			if answer := op.method + " " + op.path + ": " + status; !d.seen[answer] {
				all = append(all, answer)
			}
		}
	}
	slices.Sort(all)
	return all
}

// compare returns how an exchange differs from the description. The body of a request need not
// agree if the request is refused.
func (d *document) compare(req *http.Request, sent []byte, resp *http.Response, answer []byte) error {
	op := operation{req.Method, req.URL.Path, d.paths[req.URL.Path][req.Method]}
	if op.spec == nil {
		return errors.New("the request is not described")
	}
	if !op.describes(resp.StatusCode) {
		return errors.New("the status is not described")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen[op.answer(resp.StatusCode)] = true
	at := "#/paths/" + pointer(req.URL.Path) + "/" + strings.ToLower(req.Method)
	if body, ok := op.spec["requestBody"].(map[string]any); ok && resp.StatusCode < 300 {
		if err := d.validate(body, at+"/requestBody", req.Header.Get("Content-Type"), sent); err != nil {
			return fmt.Errorf("the request: %w", err)
		}
	}
	status := strconv.Itoa(resp.StatusCode)
	spec := op.spec["responses"].(map[string]any)[status].(map[string]any)
	at += "/responses/" + status
	if ref, ok := spec["$ref"].(string); ok {
		at, spec = ref, nil
	}
	if spec != nil && spec["content"] == nil {
		if len(answer) > 0 {
			return errors.New("the answer has a body")
		}
		return nil
	}
	if err := d.validate(spec, at, resp.Header.Get("Content-Type"), answer); err != nil {
		return fmt.Errorf("the answer: %w", err)
	}
	return nil
}

// validate compares a body with the schema of its content type. All problems have one content
// type.
func (d *document) validate(spec map[string]any, at, contentType string, body []byte) error {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return err
	}
	if spec != nil && spec["content"].(map[string]any)[kind] == nil || spec == nil && kind != wire.TypeProblem {
		return fmt.Errorf("the content type %s is not described", kind)
	}
	if kind == "text/plain" {
		return nil // any text is a string
	}
	if kind == wire.TypeLines {
		for line := range bytes.Lines(body) {
			if err := d.check("#/components/schemas/Lock", line); err != nil {
				return err
			}
		}
		return nil
	}
	return d.check(at+"/content/"+pointer(kind)+"/schema", body)
}

// check compares a JSON document with the schema at a pointer.
func (d *document) check(at string, body []byte) error {
	schema := d.schemas[at]
	if schema == nil {
		var err error
		if schema, err = d.compiler.Compile("openapi.json" + at); err != nil {
			return err
		}
		d.schemas[at] = schema
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// pointer returns a part of a JSON pointer in a URL.
func pointer(part string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(part)
}

// described is a handler whose answers are compared with a description.
func described(t testing.TB, d *document, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		r.Body = io.NopCloser(bytes.NewReader(sent))
		copied := &copying{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(copied, r)
		resp := &http.Response{StatusCode: copied.status, Header: w.Header()}
		if err := d.compare(r, sent, resp, copied.body.Bytes()); err != nil {
			t.Errorf("%s %s %s: %v; the answer is %d %s", r.Method, r.URL, sent, err, copied.status, &copied.body)
		}
	})
}

// A copying is a ResponseWriter that keeps a copy.
type copying struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (c *copying) WriteHeader(status int) { c.status = status; c.ResponseWriter.WriteHeader(status) }

func (c *copying) Write(b []byte) (int, error) {
	c.body.Write(b)
	return c.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (c *copying) Unwrap() http.ResponseWriter { return c.ResponseWriter }
