package backend

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
)

// parseRedis parses a whole URL.
func parseRedis(text string) (*serverURL, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	k, ok := kindOf(scheme)
	if !ok {
		return nil, errors.New("no scheme of Redis")
	}
	return k.parse(rest)
}

func TestRedisURL(t *testing.T) {
	tests := []struct {
		url, canonical string
		want           func(rueidis.ClientOption) bool
	}{
		{"redis://localhost", "redis://localhost:6379/0", func(o rueidis.ClientOption) bool {
			return o.Username == "" && o.Password == "" && o.SelectDB == 0 && o.TLSConfig == nil && o.Dialer.Timeout == 5*time.Second
		}},
		{"redis://LocalHost:06379/", "redis://localhost:6379/0", nil},
		{"redis://user:pass@127.0.0.1:7000/3", "redis://127.0.0.1:7000/3", func(o rueidis.ClientOption) bool {
			return o.Username == "user" && o.Password == "pass" && o.SelectDB == 3 && slices.Equal(o.InitAddress, []string{"127.0.0.1:7000"})
		}},
		{"redis://:p%40%2F%3A%25%20+ö@[::1]", "redis://[::1]:6379/0", func(o rueidis.ClientOption) bool {
			return o.Username == "" && o.Password == "p@/:% +ö"
		}},
		{"redis://:a@b:c@h", "redis://h:6379/0", func(o rueidis.ClientOption) bool { return o.Password == "a@b:c" }},
		{"redis://[FE80:0::1%25eth0]:7000", "redis://[fe80::1%25eth0]:7000/0", nil},
		{"rediss://h?server-name=x.org", "rediss://h:6379/0", func(o rueidis.ClientOption) bool {
			return o.TLSConfig.ServerName == "x.org" && !o.TLSConfig.InsecureSkipVerify
		}},
		{"rediss://h?insecure=on", "rediss://h:6379/0", func(o rueidis.ClientOption) bool { return o.TLSConfig.InsecureSkipVerify }},
		{"redis://h?dial-timeout=2", "redis://h:6379/0", func(o rueidis.ClientOption) bool {
			return o.Dialer.Timeout == 2*time.Second
		}},
		{
			"rediss+sentinel://u:p@b,a:1,b:26379/my%20master/2?sentinel-user=su&sentinel-password=sp&dial-timeout=300ms",
			"rediss+sentinel://a:1,b:26379/my%20master/2", func(o rueidis.ClientOption) bool {
				s := o.Sentinel
				return o.Username == "u" && o.Password == "p" && o.SelectDB == 2 && s.MasterSet == "my master" && s.Username == "su" &&
					s.Password == "sp" && s.TLSConfig != nil && s.Dialer.Timeout == 300*time.Millisecond && o.Dialer.Timeout == s.Dialer.Timeout
			},
		},
		{"redis+cluster://b,a,[::2]:9", "redis+cluster://[::2]:9,a:6379,b:6379", func(o rueidis.ClientOption) bool {
			return slices.Equal(o.InitAddress, []string{"[::2]:9", "a:6379", "b:6379"}) && o.Sentinel.MasterSet == ""
		}},
		{"redis+unix://u:p@/run/a%20b.sock?db=2", "redis+unix:///run/a%20b.sock?db=2", func(o rueidis.ClientOption) bool {
			return o.Username == "u" && o.Password == "p" && o.SelectDB == 2 && o.DialCtxFn != nil && slices.Equal(o.InitAddress, []string{"/run/a b.sock"})
		}},
		{"redis+cluster://a/0?failover-grace=off", "redis+cluster://a:6379", nil},
	}
	for _, tt := range tests {
		u, err := parseRedis(tt.url)
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		o, err := u.options()
		if err != nil || tt.want != nil && !tt.want(o) {
			t.Errorf("options of %s = %+v, %v", tt.url, o, err)
		}
		if u.String() != tt.canonical {
			t.Errorf("the canonical form of %s is %s, want %s", tt.url, u, tt.canonical)
		}
		if again, err := parseRedis(tt.canonical); err != nil || again.String() != tt.canonical {
			t.Errorf("the canonical form of %s is %v, %v, want the same", tt.canonical, again, err)
		}
	}
}

// TestPasswordFile checks that the first line of the file is used unchanged,
// without the end of the line.
func TestPasswordFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	for content, want := range map[string]string{"pass": "pass", "pass\n": "pass", "pass\r\n": "pass",
		" p%40 s \nmore\n": " p%40 s "} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		u, err := parseRedis("redis+sentinel://me@h/m?password-file=" + url.PathEscape(file) + "&sentinel-password-file=" + file)
		if err != nil {
			t.Fatal(err)
		}
		o, err := u.options()
		if err != nil || o.Username != "me" || o.Password != want || o.Sentinel.Password != want {
			t.Errorf("with the file %q, the passwords are %q and %q, %v; want %q", content, o.Password, o.Sentinel.Password, err, want)
		}
	}
	if u, err := parseRedis("redis://:pass@h?password-file=" + file); err == nil {
		t.Errorf("%v has a password and a file for it, and is accepted", u)
	}
}

// FuzzRedisURL looks for a password in the error for a URL or in its canonical form, and for
// URLs whose canonical form is not stable.
func FuzzRedisURL(f *testing.F) {
	const secret = "s3cr3t"
	f.Add("redis", "user:", "", "localhost:6379/0")
	f.Add("rediss+sentinel", ":", "%", "[::1]:1,h/master/1?dial-timeout=2s")
	f.Add("redis+cluster", ":/", "?#", "a,b?failover-grace=off&prefix=x")
	f.Fuzz(func(t *testing.T, scheme, before, after, rest string) {
		u, err := parseRedis(scheme + "://" + before + secret + after + "@" + rest)
		if err != nil {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error contains the password: %v", err)
			}
			return
		}
		text := u.String()
		if strings.Contains(text, secret) {
			t.Errorf("%s contains the password", text)
		}
		if again, err := parseRedis(text); err != nil || again.String() != text {
			t.Errorf("the canonical form of %s is %v, %v, want the same", text, again, err)
		}
	})
}

// A hungStore grants locks, and then hangs.
type hungStore struct{ driver.Driver }

type hungLease struct{ driver.Lease }

func (s hungStore) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	lease, err := s.Driver.Acquire(ctx, req)
	return hungLease{lease}, err
}

func (hungLease) Release(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// TestGraceEndsSoon checks that a store that hangs does not keep a question about it.
func TestGraceEndsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{Driver: withholding{Driver: hungStore{memlock.New()}}}
		if left, err := s.Grace(context.Background(), "name", time.Minute); left != 0 || err != nil {
			t.Errorf("Grace = %v, %v, want none", left, err)
		}
	})
}

// TestProbe checks that the lock that Grace acquires has a new name, and is in the same slot of a
// Cluster as the given one if a tag can achieve that.
func TestProbe(t *testing.T) {
	for name, tag := range map[string]string{
		"a": "{a}", "a{b}c": "{b}", "{}a": "", "a{b": "", "a}b": "", "a{{b}}": "", strings.Repeat("x", 512): "",
		"jobs/ü": "{jobs/ü}",
	} {
		got := probe(name)
		if !strings.HasPrefix(got, tag+"snib-probe/") || got == probe(name) || driver.CheckName(got) != nil {
			t.Errorf("probe(%q) = %q, want a new name with the tag %q", name, got, tag)
		}
	}
}
