package zklock

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sniblock/snib/driver"
)

// TestFolder checks the wire format, version 1.
func TestFolder(t *testing.T) {
	tests := []struct{ root, name, want string }{
		{"/snib", "job", "/snib/job"},
		{"/snib", "orders/42", "/snib/orders%2F42"},
		{"/snib", "50%", "/snib/50%25"},
		{"/snib", ".", "/snib/%2E"},
		{"/snib", "..", "/snib/%2E%2E"},
		{"/snib", "...", "/snib/..."},
		{"/snib", ".hidden", "/snib/.hidden"},
		{"/snib", "a b\n", "/snib/a%20b%0A"},
		{"/snib", "日本", "/snib/%E6%97%A5%E6%9C%AC"},
		{"/snib", "🔒", "/snib/%F0%9F%94%92"},
		{"/snib", "\x7f~", "/snib/%7F~"},
		{"/snib", "zookeeper", "/snib/zookeeper"},
		{"/", "zookeeper", "/%7Aookeeper"},
		{"/", "job", "/job"},
	}
	for _, tt := range tests {
		c := config{root: tt.root}
		got := c.folder(tt.name)
		if got != tt.want {
			t.Errorf("folder of %q in %q = %q, want %q", tt.name, tt.root, got, tt.want)
		}
		if name, ok := c.lockName(baseName(got)); !ok || name != tt.name {
			t.Errorf("lock of %q = %q, %v; want %q", got, name, ok, tt.name)
		}
	}
}

// TestLockNameForeign checks that a name that we would have encoded differently is not a lock
// of ours.
func TestLockNameForeign(t *testing.T) {
	c, top := config{root: "/snib"}, config{root: "/"}
	for _, node := range []string{"%", "a%2", "a%2f", "%41", "%ZZ", "a b", "日本", "%FF", "a%00", "."} {
		if name, ok := c.lockName(node); ok {
			t.Errorf("the node %q is taken for the lock %q", node, name)
		}
	}
	if name, ok := top.lockName("zookeeper"); ok {
		t.Errorf("ZooKeeper's own node is taken for the lock %q", name)
	}
}

// TestLiteralNames checks which names are used without change, and which are refused.
func TestLiteralNames(t *testing.T) {
	tests := []struct {
		root, name string
		want       string // the folder; "" if the name is refused
	}{
		{"/fl", "my lock", "/fl/my lock"},
		{"/fl", "größe", "/fl/größe"},
		{"/fl", "50%", "/fl/50%"},
		{"/fl", "%41", "/fl/%41"},
		{"/fl", "...", "/fl/..."},
		{"/", "日本", "/日本"},
		{"/fl", "zookeeper", "/fl/zookeeper"},
		{"/", "zookeeper", ""},
		{"/fl", "orders/42", ""},
		{"/fl", "..", ""},
		{"/fl", "line\nend", ""},
		{"/fl", "🔒", ""}, // Java has two characters for it, which ZooKeeper refuses
		{"/fl", "%snib", ""},
	}
	for _, tt := range tests {
		c := config{root: tt.root, literalNames: true}
		if err := c.checkName(tt.name); err != nil || tt.want == "" {
			if tt.want != "" || !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%q in %q: %v; want the folder %q", tt.name, tt.root, err, tt.want)
			}
			if name, ok := c.lockName(tt.name); ok {
				t.Errorf("the node %q in %q is taken for the lock %q", tt.name, tt.root, name)
			}
			continue
		}
		if got := c.folder(tt.name); got != tt.want {
			t.Errorf("folder of %q in %q = %q, want %q", tt.name, tt.root, got, tt.want)
		}
		if name, ok := c.lockName(baseName(tt.want)); !ok || name != tt.name {
			t.Errorf("lock of %q = %q, %v; want %q", tt.want, name, ok, tt.name)
		}
	}
}

func FuzzFolder(f *testing.F) {
	for _, name := range []string{"job", "a/b", "..", "%2F", "日本\n", "zookeeper", "\x7f"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if !utf8.ValidString(name) || driver.CheckName(name) != nil {
			return
		}
		for _, root := range []string{"/", "/a/b"} {
			c := config{root: root}
			path := c.folder(name)
			last := strings.TrimPrefix(path, strings.TrimSuffix(root, "/")+"/")
			if strings.ContainsFunc(last, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '/' }) || last == "." ||
				last == ".." {
				t.Errorf("folder of %q = %q, which ZooKeeper may not take", name, path)
			}
			if got, ok := c.lockName(baseName(path)); !ok || got != name {
				t.Errorf("lock of %q = %q, %v; want %q", path, got, ok, name)
			}
		}
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		servers []string
		opts    []Option
		says    string // "" if the options are valid
	}{
		{"Default", []string{"localhost"}, nil, ""},
		{"Addresses", []string{"zk1:2181", "[::1]:2181", "::1", "10.0.0.1"}, nil, ""},
		{"NoServer", nil, nil, "list of servers"},
		{"EmptyServer", []string{""}, nil, "neither a host nor"},
		{"ServerWithUser", []string{"u:zktest-secret@host:1"}, nil, "neither a host nor"},
		{"PortTooGreat", []string{"host:70000"}, nil, "neither a host nor"},
		{"Root", []string{"a"}, []Option{Root("/infra/locks")}, ""},
		{"RootOfAll", []string{"a"}, []Option{Root("/")}, ""},
		{"RelativeRoot", []string{"a"}, []Option{Root("infra")}, "does not begin with /"},
		{"RootEndsWithSlash", []string{"a"}, []Option{Root("/infra/")}, "empty part"},
		{"RootUp", []string{"a"}, []Option{Root("/a/../b")}, ". or .."},
		{"RootControl", []string{"a"}, []Option{Root("/a\x01")}, "characters"},
		{"RootReserved", []string{"a"}, []Option{Root("/zookeeper/x")}, "ZooKeeper's own"},
		{"ShortTimeout", []string{"a"}, []Option{Timeout(0)}, "session timeout 0s"},
		{"LongTimeout", []string{"a"}, []Option{Timeout(1 << 62)}, "session timeout"},
		{"ShortDial", []string{"a"}, []Option{DialTimeout(-1)}, "dial timeout"},
		{"NoUser", []string{"a"}, []Option{Digest("", "zktest-secret")}, "digest"},
		{"UserWithColon", []string{"a"}, []Option{Digest("a:b", "zktest-secret")}, "digest"},
		{"NoPassword", []string{"a"}, []Option{Digest("a", "")}, "digest"},
		{"EmptyACL", []string{"a"}, []Option{ACL()}, "no entries"},
		{"Zero", []string{"a"}, make([]Option, 1), "the zero Option"},
		{"NilTLS", []string{"a"}, []Option{TLS(nil)}, "nil"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := New(tt.servers, tt.opts...)
			if tt.says == "" {
				if err != nil {
					t.Fatalf("New = %v, want no error", err)
				}
				d.Close()
				return
			}
			if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), tt.says) ||
				strings.Contains(err.Error(), "zktest-secret") {
				t.Errorf("New = %v, want ErrInvalid that says %q, without a password", err, tt.says)
			}
		})
	}
}
