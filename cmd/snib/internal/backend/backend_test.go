package backend

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// TestUntrusted checks that a server whose certificate nobody vouches for, that has no TLS, or that
// is no lock service is a mistake of configuration and no outage, for which the command would wait.
func TestUntrusted(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	untrusted := server.Listener.Addr().String()
	server = httptest.NewServer(nil)
	defer server.Close()
	other := server.Listener.Addr().String()
	for _, url := range []string{
		"rediss://" + untrusted, "zks://" + untrusted, "etcds://" + untrusted, "https://" + untrusted,
		"https://" + other, "http://" + other,
	} {
		s, err := Open(t.Context(), url, Take)
		if err == nil { // the first request connects
			_, err = s.Acquire(t.Context(), driver.Request{Name: "x", ID: "a", TTL: time.Minute, NoWait: true})
			s.Close()
		}
		if !errors.Is(err, ErrConfig) && !Mismatched(err) || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrConfig or Mismatched", url, err)
		}
	}
}

func TestErrorsHaveNoSecrets(t *testing.T) {
	for _, url := range []string{"consul://user:secret@host/0", "user:secret@host/0", "//user:secret@host", "user@secret:1", "secret@host/1:2"} {
		if _, err := Open(t.Context(), url, Take); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("Open(t.Context(), %q) = %v, want an error without the password", url, err)
		}
	}
}

// TestCanonical checks that all ways to name one file mean one store.
func TestCanonical(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	var first string
	for _, path := range []string{dir + "/x.db", "x.db", "./x.db", "link/x.db", dir + "//link/../x.db"} {
		s, err := Open(t.Context(), "sqlite:"+path, Take)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if first == "" {
			first = s.URL
		}
		if s.URL != first {
			t.Errorf("URL of %s = %s, want %s", path, s.URL, first)
		}
	}
}

// TestDeletedFile checks that the marks of a service don't come back in a file without locks.
func TestDeletedFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	s, err := Open(t.Context(), "sqlite:"+file, Take)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	_, err = s.Identity(t.Context())
	if _, missing := os.Stat(file); err == nil || missing == nil {
		t.Errorf("after the file was deleted, Identity = %v, and Stat = %v, want errors", err, missing)
	}
}

func TestDefaultFile(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	if got, err := DefaultFile(); got != "/state/snib/locks.db" || err != nil {
		t.Errorf("DefaultFile = %s, %v, want /state/snib/locks.db", got, err)
	}
	t.Setenv("XDG_STATE_HOME", "relative") // invalid by the XDG specification
	t.Setenv("HOME", "/home/me")
	want := "/home/me/.local/state/snib/locks.db"
	if os.Geteuid() == 0 {
		want = "/var/lib/snib/locks.db"
	}
	if got, err := DefaultFile(); got != want || err != nil {
		t.Errorf("DefaultFile = %s, %v, want %s", got, err, want)
	}
}

// TestDatabaseURL checks that the shown URLs of databases contain no password.
func TestDatabaseURL(t *testing.T) {
	for _, tt := range []struct{ url, want string }{
		{"postgres://app:horse@db:5433/locks?sslmode=disable", "postgres://app@db:5433/locks"},
		{"postgresql://app:horse@db/locks", "postgres://app@db:5432/locks"},
		{"mysql://app:horse@db:3307/locks?parseTime=true", "mysql://app@db:3307/locks"},
		{"mysql://app:h%40rse@[::1]/locks", "mysql://app@[::1]:3306/locks"},
		{"mysql://app@%2Frun%2Fmysqld%2Fmysqld.sock/locks", "mysql://app@%2Frun%2Fmysqld%2Fmysqld.sock/locks"},
		{"mysql://app@localhost/locks?socket=/run/mysqld/mysqld.sock", "mysql://app@%2Frun%2Fmysqld%2Fmysqld.sock/locks"},
		{"mysql://app@/locks?socket=/run/mysqld/mysqld.sock", "mysql://app@%2Frun%2Fmysqld%2Fmysqld.sock/locks"},
		{"postgres://app@%2Frun%2Fpostgresql/locks", "postgres://app@%2Frun%2Fpostgresql:5432/locks"},
		{"postgres://app@%2Frun%2Fpostgresql:5433/locks", "postgres://app@%2Frun%2Fpostgresql:5433/locks"},
		{"postgres://app@/locks?host=/run/postgresql", "postgres://app@%2Frun%2Fpostgresql:5432/locks"},
	} {
		at, err := resolve(tt.url)
		if err != nil || at.url != tt.want {
			t.Errorf("resolve(%q) = %q, %v; want %q", tt.url, at.url, err, tt.want)
		}
	}
	for _, url := range []string{
		"postgres:x", "postgres://app:horse@db:none/locks", "mysql://app:horse@db", "mysql:///locks", "mysql://app:horse@db:none/locks",
		"mysql://app:horse@db/locks?parseTime=horse", "mysql://app:%zzhorse@db/locks",
	} {
		if _, err := resolve(url); !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), ":horse") || strings.Contains(err.Error(), "zzhorse") {
			t.Errorf("resolve(%q) = %v, want ErrConfig without the password", url, err)
		}
	}
}

// TestNoPartOfAPassword writes passwords into URLs without encoding them, as people
// do. Whether a URL is accepted or refused, neither its shown form nor the error
// contains a part of the password.
func TestNoPartOfAPassword(t *testing.T) {
	shapes := []string{
		"//app:%s@db.example:1234/locks", "//:%s@db.example/0", "//app:%s@a.example,b.example,c.example", "//app:%s@[::1]:99/x?a=b",
		"//app:%s@/locks?host=/run", "//db.example/1?password=%s", "//db.example/1?sentinel-password=%s&prefix=x",
		"//app:%s@db.example/locks?sslmode=none&parseTime=maybe&timeout=x&sslrootcert=none", "//app:%s@db.example:none/%%zz", "app:%s@db.example/x",
	}
	seps := []string{
		"/", "?", "#", "@", ":", "%", "%zz", "%2F", "&", "=", "&password=", "?password=", "/?", "//", "\\", " ", "\x1b]0;",
		"\n", "[", "]", ",", ";", "+", `"`, "'",
		"\xff", "\x00", "ü", "://", "@/", "/@", "?@", "#@", "@db/", ":1234/", "/1234@", "$", "`", "^", "|", "~", "<>", "{}",
	}
	var passwords []string
	for _, sep := range seps {
		passwords = append(passwords, "qzq"+sep+"wvw", "1971"+sep+"wvw", "1971"+sep+"1872"+sep+"jkj")
	}
	parts := regexp.MustCompile("qzq|wvw|jkj|1971|1872")
	refused := 0
	for _, s := range Schemes() {
		if s.Name == "sqlite" { // it has no password
			continue
		}
		for _, shape := range shapes {
			for _, password := range passwords {
				url := s.Name + ":" + fmt.Sprintf(shape, password)
				at, err := resolve(url)
				if parts.MatchString(at.url) {
					t.Errorf("%q is shown as %q", url, at.url)
				}
				if err != nil {
					refused++
					if parts.MatchString(err.Error()) {
						t.Errorf("%q is refused with %q", url, err)
					}
				}
			}
		}
	}
	t.Logf("%d URLs were refused", refused)
}

// TestDatabasePasswordFile checks that databases accept a password file.
func TestDatabasePasswordFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("se/cret?#@:\nmore\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range []sqlDialect{{scheme: "postgres", taken: libpqParameters, check: checkPgx}, {scheme: "mysql", check: func(_, _ string) error { return nil }}} {
		u, err := d.split("//app@db/locks?a=b&password-file=" + url.PathEscape(file) + "&c=d")
		if err != nil || u.password != "se/cret?#@:" || u.rest != "//app@db/locks?a=b&c=d" {
			t.Fatalf("%s: %+v, %v", d.scheme, u, err)
		}
		if err := os.WriteFile(file, []byte("new"), 0o600); err != nil {
			t.Fatal(err)
		}
		if now, err := u.currentPassword(); err != nil || now != "new" {
			t.Errorf("%s: the password of the changed file is %q, %v", d.scheme, now, err)
		}
		if err := os.WriteFile(file, []byte("se/cret?#@:\nmore\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := d.split("//app:x@db/locks?password-file=" + url.PathEscape(file)); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: a password and a file for it: %v, want ErrConfig", d.scheme, err)
		}
	}
}

// TestForeignParameters checks what becomes of parameters that psql, mysql and others accept: they
// do what they say, or the error names them.
func TestForeignParameters(t *testing.T) {
	for _, tt := range []struct{ url, want string }{ // want is a part of the error; "" if there is none
		{"postgres://app@db/x?gssencmode=disable&keepalives=1&keepalives_idle=30&keepalives_interval=10&keepalives_count=3&tcp_user_timeout=1", ""},
		{"postgres://app@db/x?sslcompression=0&fallback_application_name=a&hostaddr=127.0.0.1&ssl_min_protocol_version=TLSv1.3&sslmode=require", ""},
		{"postgres://app@db/x?channel_binding=prefer&sslsni=1&options=-csearch_path%3Da&target_session_attrs=read-write&connect_timeout=3&application_name=a", ""},
		{"postgres://app@db/x?client_encoding=auto&search_path=a&load_balance_hosts=random&sslrootcert=system&sslmode=verify-full", ""},
		{"postgres://app@db/x?gssencmode=require", "parameter gssencmode: there is no encryption by GSSAPI"},
		{"postgres://app@db/x?requirepeer=postgres", "parameter requirepeer: "},
		{"postgres://app@db/x?sslcrl=x.crl", "parameter sslcrl: "},
		{"postgres://app@db/x?ssl_min_protocol_version=1.2", "parameter ssl_min_protocol_version: it is TLSv1.2 or TLSv1.3"},
		{"postgres://app@db/x?sslmode=no-verify", "parameter sslmode: it is disable, allow"},
		{"postgres://app@db/x?connect_timeout=soon", "parameter connect_timeout: "},
		{"mysql://app@db/x?ssl-mode=REQUIRED", ""},
		{"mysql://app@db/x?ssl-mode=VERIFY_CA", "parameter ssl-mode: it is DISABLED"},
		{"mysql://app@db/x?ssl-cert=a.pem", "parameters ssl-cert and ssl-key belong together"},
		{"mysql://app@db/x?timeout=soon", "parameter timeout: "},
		{"valkey://h:1/2?prefix=a", ""},
		{"valkeys://h", ""},
		{"valkey+sentinel://h/m", ""},
		{"redis+unix://h/run/redis.sock", "a socket has none"},
		{"redis://h?db=2", "parameter db is for Unix sockets"},
		{"redis://h?session-timeout=2s", "parameter session-timeout is for other stores: ZooKeeper, etcd"},
		{"redis://h?protocol=3", "parameter protocol is unknown; there are"},
		{"etcd://h?suspended=keep", "parameter suspended is for other stores: ZooKeeper"},
	} {
		_, err := resolve(tt.url)
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("resolve(%q) = %v, want %q", tt.url, err, tt.want)
		}
	}
}

// TestEndlessFile checks that a file without an end, such as a device, is refused as a password, as
// a list of certificate authorities, and as a certificate.
func TestEndlessFile(t *testing.T) {
	for _, url := range []string{"redis://localhost?password-file=/dev/zero", "rediss://localhost?ca=/dev/zero", "mysql://app@localhost/db?password-file=/dev/zero",
		"rediss://localhost?cert=/dev/zero&key=/dev/zero"} {
		done := make(chan error, 1)
		go func() {
			_, err := Open(t.Context(), url, Take)
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "/dev/zero") {
				t.Errorf("Open(%s) = %v, want ErrConfig that names the file", url, err)
			}
		case <-time.After(livetest.Patience):
			t.Fatalf("Open(%s) does not return", url)
		}
	}
}

func TestParseDuration(t *testing.T) {
	tests := []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"30s", 30 * time.Second, true}, {"30", 30 * time.Second, true}, {"0.5", 500 * time.Millisecond, true},
		{"1h30m", 90 * time.Minute, true}, {"0", 0, true}, {"", 0, false}, {"s", 0, false}, {"1x", 0, false}, {"1h30", 0, false},
		{"Inf", 0, false}, {"-Inf", 0, false}, {"NaN", 0, false}, {"1e18", 0, false}, {"10000000h", 0, false},
	}
	for _, tt := range tests {
		got, err := ParseDuration(tt.text)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v, ok %v", tt.text, got, err, tt.want, tt.ok)
		}
	}
}
