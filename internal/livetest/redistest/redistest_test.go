package redistest_test

import (
	"errors"
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

func TestSingle(t *testing.T) {
	const password = `hush "hush" \ ü`
	tests := []struct {
		name string
		conf []string
		url  string // without the port
	}{
		{name: "Plain", url: "redis://127.0.0.1:"},
		{name: "Password", conf: []string{redistest.Password(password)},
			url: "redis://:" + url.PathEscape(password) + "@127.0.0.1:"},
		{name: "TLS", conf: []string{redistest.TLS}, url: "rediss://127.0.0.1:"},
		{name: "TLSAndPassword", conf: []string{redistest.TLS, redistest.Password("hush")}, url: "rediss://:hush@127.0.0.1:"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			began := time.Now()
			node := redistest.Single(t, tt.conf...)
			t.Logf("started in %v", time.Since(began))
			if got, want := node.URL(), tt.url+node.Addr()[len("127.0.0.1:"):]; got != want {
				t.Errorf("URL = %s, want %s", got, want)
			}
			node.Must("SET", "key", 7)
			if got := node.Must("GET", "key"); got != "7" {
				t.Errorf("GET = %v, want 7", got)
			}
			if _, err := redistest.Do(node.Addr(), "PING"); (err == nil) != (tt.conf == nil) {
				t.Errorf("PING without TLS or password = %v", err)
			}
			if (node.TLS() != nil) != (tt.url[:6] == "rediss") {
				t.Errorf("TLS = %v for %s", node.TLS(), node.URL())
			}
		})
	}
}

// TestConf checks that lines of configuration override the defaults of this package.
func TestConf(t *testing.T) {
	node := redistest.Single(t, "user default off", "user alice on >wonder ~* +@all")
	var no redistest.Error
	if _, err := node.Do("PING"); !errors.As(err, &no) {
		t.Errorf("PING by a user who is off = %v, want an Error", err)
	}

	for conf, want := range map[string]any{"appendonly no": nil, "appendonly yes": "value"} {
		t.Run(conf, func(t *testing.T) {
			node := redistest.Single(t, conf, "appendfsync always")
			node.Must("SET", "key", "value")
			node.Kill()
			node.Restart()
			if got := node.Must("GET", "key"); got != want {
				t.Errorf("GET after a restart = %v, want %v", got, want)
			}
		})
	}
}

func TestDo(t *testing.T) {
	node := redistest.Single(t)
	tests := []struct {
		args []any
		want any
	}{
		{[]any{"PING"}, "PONG"},
		{[]any{"INCRBY", "n", 41}, int64(41)},
		{[]any{"GET", "none"}, nil},
		{[]any{"BLPOP", "none", 0.01}, nil},
		{[]any{"ECHO", "a\r\nb"}, "a\r\nb"},
		{[]any{"ECHO", ""}, ""},
		{[]any{"EVAL", "return {1, {'two', false}, {}, {err = 'NO three'}}", 0},
			[]any{int64(1), []any{"two", nil}, []any{}, redistest.Error("NO three")}},
	}
	for _, tt := range tests {
		got, err := node.Do(tt.args...)
		if !reflect.DeepEqual(got, tt.want) || err != nil {
			t.Errorf("Do(%q) = %#v, %v, want %#v", tt.args, got, err, tt.want)
		}
	}
	var no redistest.Error
	if _, err := node.Do("INCR", "n", "m"); !errors.As(err, &no) {
		t.Errorf("INCR with too much = %v, want an Error", err)
	}
	node.Kill()
	if _, err := node.Do("PING"); err == nil || errors.As(err, &no) {
		t.Errorf("PING to a dead server = %v, want an error that is no Error", err)
	}
}

// TestLostAnswer loses the answer to a SET with a proxy.
func TestLostAnswer(t *testing.T) {
	node := redistest.Single(t)
	proxy := livetest.NewProxy(t, node.Addr())
	lost := proxy.LoseAnswers(1, livetest.ThenClose, "SET", "owner-1")
	if got, err := redistest.Do(proxy.Addr(), "SET", "lock", "owner-2", "NX"); got != "OK" || err != nil {
		t.Errorf("SET by another = %v, %v, want OK", got, err)
	}
	node.Must("DEL", "lock")
	if got, err := redistest.Do(proxy.Addr(), "SET", "lock", "owner-1", "NX"); err == nil {
		t.Errorf("SET whose answer is lost = %v, want an error", got)
	}
	select {
	case <-lost:
	default:
		t.Error("the client knows before the test does")
	}
	if got, err := redistest.Do(proxy.Addr(), "GET", "lock"); got != "owner-1" || err != nil {
		t.Errorf("GET = %v, %v, want owner-1", got, err)
	}
}
