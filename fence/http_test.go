package fence_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
)

// newCountingServer starts a server for a resource that the lock "account/42" guards, and records
// the marks of the requests that get through.
func newCountingServer(t *testing.T, log *slog.Logger) (url string, served *[]fence.Mark) {
	t.Helper()
	served = new([]fence.Mark)
	s := fence.Server{Guard: new(fence.Memory), Lock: func(*http.Request) string { return "account/42" }, Log: log}
	srv := httptest.NewServer(s.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		m, _ := fence.FromContext(r.Context())
		*served = append(*served, m) // one request at a time, which the race detector checks
	})))
	t.Cleanup(srv.Close)
	return srv.URL, served
}

func TestTransport(t *testing.T) {
	var log strings.Builder
	url, served := newCountingServer(t, slog.New(slog.NewTextHandler(&log, nil)))
	get := func(h fence.Hold) error {
		t.Helper()
		client := http.Client{Transport: fence.Transport{Hold: h}}
		res, err := client.Get(url)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if err = fence.CheckResponse(h, res); err == nil && res.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(res.Body)
			t.Fatalf("%s: %s", res.Status, body)
		}
		return err
	}
	old, later := hold{"account/42", 7, "old"}, hold{"account/42", 8, "later"}
	for _, h := range []hold{old, old, later} {
		if err := get(h); err != nil {
			t.Errorf("Get under %v: %v", h, err)
		}
	}
	var refused *fence.RefusedError
	if err := get(old); !errors.Is(err, fence.ErrStale) || !errors.As(err, &refused) || refused.Last.Token != 8 {
		t.Errorf("Get under an old hold = %v, want ErrStale after 8", err)
	}
	if log.Len() > 0 {
		t.Errorf("logged %q; a stale hold is no alarm", log.String())
	}
	if err := get(hold{"account/42", 8, "another"}); !errors.Is(err, fence.ErrConflict) {
		t.Errorf("Get under another hold with the same token = %v, want ErrConflict", err)
	}
	if !strings.Contains(log.String(), "same fencing token") || !strings.Contains(log.String(), "account/42") {
		t.Errorf("logged %q, want the conflict", log.String())
	}
	if err := get(hold{"account/42", 0, "none"}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Get without a token = %v, want ErrInvalid", err)
	}
	if want := []fence.Mark{mark(t, 7, "old"), mark(t, 7, "old"), mark(t, 8, "later")}; len(*served) != 3 ||
		(*served)[0] != want[0] || (*served)[2] != want[2] {
		t.Errorf("served %+v, want %+v", *served, want)
	}
}

// TestServerRefuses checks that a request without exactly one valid header is not let through, and
// that the answer says why.
func TestServerRefuses(t *testing.T) {
	url, served := newCountingServer(t, nil)
	good := mark(t, 7, "a").Header()
	elsewhere := fence.Mark{Lock: "account/43", Token: 7, Owner: mark(t, 7, "a").Owner}.Header()
	tests := []struct {
		name   string
		header []string
		status int
		body   string
	}{
		{"Missing", nil, http.StatusPreconditionRequired, "is missing"},
		{"Empty", []string{""}, http.StatusBadRequest, "no token"},
		{"Twice", []string{good, good}, http.StatusBadRequest, "2 times"},
		{"OtherLock", []string{elsewhere}, http.StatusBadRequest, "another lock"},
		{"NoOwner", []string{"account%2F42;token=7"}, http.StatusBadRequest, "no owner"},
		{"NoNumber", []string{strings.Replace(good, "=7", "=seven", 1)}, http.StatusBadRequest, "not a number"},
		{"Negative", []string{strings.Replace(good, "=7", "=-7", 1)}, http.StatusBadRequest, "not a number"},
		{"Zero", []string{strings.Replace(good, "=7", "=0", 1)}, http.StatusBadRequest, "no fencing token"},
		{"TooGreat", []string{strings.Replace(good, "=7", "=9223372036854775808", 1)}, http.StatusBadRequest, "not a number"},
		{"Wild", []string{strings.Replace(good, "=7", "=9223372036854775807", 1)}, http.StatusBadRequest, "no hold can have"},
		{"LeadingZero", []string{strings.Replace(good, "=7", "=07", 1)}, http.StatusBadRequest, "only one way"},
		{"NotEncoded", []string{strings.Replace(good, "%2F", "/", 1)}, http.StatusBadRequest, "only one way"},
		{"BadEncoding", []string{strings.Replace(good, "%2F", "%G", 1)}, http.StatusBadRequest, "percent-encoded"},
		{"Long", []string{strings.Repeat("a", 10000) + good}, http.StatusBadRequest, "bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range tt.header {
				req.Header.Add(fence.Header, h)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body, _ := io.ReadAll(res.Body)
			if tt.name == "OtherLock" && strings.Contains(string(body), "account/42") {
				t.Errorf("%s: %s; it names the lock", res.Status, body)
			}
			if res.StatusCode != tt.status || !strings.Contains(string(body), tt.body) {
				t.Errorf("%s: %s; want %d and %q", res.Status, body, tt.status, tt.body)
			}
		})
	}
	if len(*served) > 0 {
		t.Errorf("let through: %+v", *served)
	}
}

// TestServerGuardFails checks that a guard that fails lets nobody through, and does not tell the
// client why.
func TestServerGuardFails(t *testing.T) {
	var log strings.Builder
	s := fence.Server{Guard: brokenGuard{}, Lock: func(*http.Request) string { return "account/42" },
		Log: slog.New(slog.NewTextHandler(&log, nil))}
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.Header.Set(fence.Header, mark(t, 7, "a").Header())
	s.Wrap(http.NotFoundHandler()).ServeHTTP(rec, req)
	if rec.Code != http.StatusInternalServerError || strings.Contains(rec.Body.String(), "disk") ||
		!strings.Contains(log.String(), "disk") {
		t.Errorf("answered %d %q and logged %q; want 500, and the reason in the log only", rec.Code, rec.Body, log.String())
	}
}

type brokenGuard struct{}

func (brokenGuard) Do(context.Context, fence.Mark, func(context.Context) error) error {
	return errors.New("the disk is full")
}

// FuzzParseHeader checks that ParseHeader accepts a value only if it is exactly the header of the
// mark that it returns.
func FuzzParseHeader(f *testing.F) {
	f.Add(mark(f, 7, "a").Header())
	f.Add("a;token=1;owner=00000000000000000000000000000000")
	f.Add("a;token=1;token=2;owner=0;owner=1")
	f.Add("%00;token=1;owner=")
	f.Fuzz(func(t *testing.T, value string) {
		m, err := fence.ParseHeader(value)
		if err != nil {
			if !errors.Is(err, driver.ErrInvalid) || m != (fence.Mark{}) {
				t.Errorf("ParseHeader(%q) = %+v, %v; want no mark, and ErrInvalid", value, m, err)
			}
			return
		}
		if m.Header() != value || m.Token == 0 || driver.CheckName(m.Lock) != nil {
			t.Errorf("ParseHeader(%q) = %+v, whose header is %q", value, m, m.Header())
		}
	})
}

// A silentGuard lets nothing in until ctx is over, of which its error says nothing, as that of a
// database.
type silentGuard struct{}

func (silentGuard) Do(ctx context.Context, _ fence.Mark, _ func(context.Context) error) error {
	<-ctx.Done()
	return errors.New("canceling statement due to user request")
}

func TestGuardIsBusy(t *testing.T) {
	s := fence.Server{Guard: silentGuard{}, Lock: func(*http.Request) string { return "account/42" }, Timeout: time.Millisecond}
	r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
	r.Header.Set(fence.Header, mark(t, 7, "a").Header())
	if s.Wrap(nil).ServeHTTP(w, r); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a request that the guard did not let in within Timeout is answered %d, want 503", w.Code)
	}
}
