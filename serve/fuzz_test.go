package serve

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock/wire"
)

// FuzzRequest sends arbitrary requests. Each is answered with what its path can have, or with a
// problem of a type that clients know.
func FuzzRequest(f *testing.F) {
	for _, path := range []string{wire.PathAcquire, wire.PathWithdraw, wire.PathRenew, wire.PathRelease, wire.PathLabel, wire.PathBreak, wire.PathFence} {
		f.Add("POST", path, `{"name":"job","owner":"me","token":1,"reason":"r"}`)
	}
	f.Add("POST", wire.PathAcquire, `{"name":"job","owner":"me~00000000.X.AAAAAAAAAA","attempt":"X","ttl_ms":9223372036854775807}`)
	f.Add("POST", wire.PathRenew, `{"leases":[{"name":"job","owner":"me","token":1,"ttl_ms":1}]}`)
	f.Add("POST", wire.PathFence, `{"resource":"disk","owner":"me","token":2}`)
	f.Add("POST", wire.PathFence, `{"resource":"disk","owner":"me~00000000.X.AAAAAAAAAA","token":9223372036854775808}`)
	f.Add("GET", wire.PathLocks+"?prefix=%ff&limit=1", "")
	f.Add("GET", wire.PathLock+"?name=job", "")
	for _, path := range []string{"/", "/console", "/console/", "/console/nothing"} {
		f.Add("GET", path, "")
		f.Add("POST", path, "")
	}
	s, err := New(memlock.New(), Options{MaxWait: 1, Fence: new(fence.Memory)})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, target, body string) {
		if !strings.HasPrefix(target, "/") || strings.ContainsAny(target+method, " \r\n\x00") || method == "" {
			t.Skip("it is no request")
		}
		req, err := http.NewRequest(method, "http://localhost"+target, strings.NewReader(body))
		if err != nil {
			t.Skip("it is no request")
		}
		req.Header.Set("Content-Type", wire.TypeJSON)
		req.RemoteAddr, req.Host = "127.0.0.1:999", "localhost"
		req = req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, localAddr("127.0.0.1:7420")))
		w := httptest.NewRecorder()
		s.ServeHTTP(w, req)
		if w.Code < 300 || w.Code == http.StatusFound && w.Header().Get("Location") == "console/" {
			return
		}
		var p wire.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code || wire.NewProblem(p.Kind(), "", 0).Status != w.Code {
			t.Errorf("%s %s %s: %d %s, %v", method, target, body, w.Code, w.Body, err)
		}
		if w.Code == http.StatusInternalServerError {
			t.Errorf("%s %s %s: %d %s", method, target, body, w.Code, w.Body)
		}
	})
}

// FuzzOwner parses arbitrary owners. String is the inverse of parseOwner, and a client can't make
// an owner that looks as if a service had made it for another client.
func FuzzOwner(f *testing.F) {
	f.Add("me", "X")
	f.Add(newOwnerID("me", "X").String(), "")
	f.Add("a~b.c.d", "")
	f.Add("~00000000..AAAAAAAAAA", "")
	f.Fuzz(func(t *testing.T, text, attempt string) {
		if got := parseOwner(text).String(); got != text {
			t.Errorf("parseOwner(%q).String() = %q", text, got)
		}
		if checkAttempt(attempt) != nil {
			return
		}
		o := newOwnerID(text, attempt)
		if got := parseOwner(o.String()); got != o {
			t.Errorf("parseOwner(%q) = %+v, want %+v", o.String(), got, o)
		}
		if !(ownerID{client: text}).names(o.String()) || (ownerID{client: text + "x"}).names(o.String()) {
			t.Errorf("who is meant by %q?", o.String())
		}
	})
}
