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
	for _, path := range []string{wire.PathAcquire, wire.PathWithdraw, wire.PathRenew, wire.PathRelease, wire.PathLabel,
		wire.PathBreak, wire.PathFence} {
		f.Add("POST", path, `{"name":"job","id":"me------------------","token":1,"reason":"r"}`)
	}
	f.Add("POST", wire.PathAcquire, `{"name":"job","id":"me------------------.AAAAAAAAAA","ttl_ms":9223372036854775807}`)
	f.Add("POST", wire.PathRenew, `{"leases":[{"name":"job","id":"me------------------","token":1,"ttl_ms":1}]}`)
	f.Add("POST", wire.PathFence, `{"resource":"disk","id":"me------------------","token":2}`)
	f.Add("POST", wire.PathFence, `{"resource":"disk","id":"me------------------.AAAAAAAAAA","token":9223372036854775808}`)
	f.Add("GET", wire.PathLocks+"?prefix=%ff", "")
	f.Add("GET", wire.PathLock+"?name=job", "")
	for _, path := range []string{"/", "/console", "/console/", "/console/nothing"} {
		f.Add("GET", path, "")
		f.Add("POST", path, "")
	}
	s, err := New(memlock.New(), Options{limits: limits{wait: 1}, Fence: new(fence.Memory)})
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

// FuzzID parses arbitrary ids. String is the inverse of parseID, and a client can't make an id that
// looks as if a service had made it for another client.
func FuzzID(f *testing.F) {
	f.Add("me")
	f.Add(longID("me"))
	f.Add(newGrantID(longID("me")).String())
	f.Add("..AAAAAAAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		if got := parseID(text).String(); got != text {
			t.Errorf("parseID(%q).String() = %q", text, got)
		}
		id, err := checkID(text)
		if err != nil {
			if strings.Contains(err.Error(), text) && len(text) > 5 {
				t.Errorf("the error shows the id: %v", err)
			}
			return
		}
		made := newGrantID(id.client)
		if got := parseID(made.String()); got != made {
			t.Errorf("parseID(%q) = %+v, want %+v", made, got, made)
		}
		if !(grantID{client: id.client}).names(made.String()) || (grantID{client: id.client + "x"}).names(made.String()) {
			t.Errorf("who is meant by %q?", made)
		}
	})
}
