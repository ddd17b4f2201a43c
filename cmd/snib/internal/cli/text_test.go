package cli

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock"
)

func TestShort(t *testing.T) {
	tests := []struct {
		d    time.Duration
		want string
	}{
		{-time.Second, "0ms"}, {0, "0ms"}, {999 * time.Millisecond, "999ms"}, {time.Second, "1s"},
		{59*time.Second + 999*time.Millisecond, "59s"}, {time.Minute, "1m00s"}, {65 * time.Second, "1m05s"},
		{time.Hour, "1h00m"}, {25 * time.Hour, "1d01h"}, {400 * 24 * time.Hour, "400d00h"},
	}
	for _, tt := range tests {
		if got := short(tt.d); got != tt.want {
			t.Errorf("short(%v) = %q, want %q", tt.d, got, tt.want)
		}
	}
}

// FuzzShellQuote lets a shell read what shellQuote quoted.
func FuzzShellQuote(f *testing.F) {
	for _, text := range []string{"", "plain", "a b", "it's", "$(touch x)", "`x`", `\`, "new\nline", "é", "~", "-n", "*"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsRune(text, 0) {
			t.Skip("can't be a name")
		}
		got, err := exec.Command("sh", "-c", "X="+shellQuote(text)+"; printf '%s' \"$X\"").Output()
		if err != nil || string(got) != text {
			t.Errorf("the shell reads %q of %s, %v; want %q", got, shellQuote(text), err, text)
		}
	})
}

func TestExitCode(t *testing.T) {
	tests := []struct {
		err  error
		want int
	}{
		{nil, 0}, {silentExit(7), 7}, {usagef("x"), 64}, {driver.ErrInvalid, 64}, {driver.ErrHeld, 75}, {driver.ErrKind, 78},
		{driver.ErrLost, 79}, {errors.New("disk on fire"), 69},
		{&mysql.MySQLError{Number: 4151}, 77},      // the account is locked
		{&mysql.MySQLError{Number: 1820}, 77},      // the password has expired
		{&mysql.MySQLError{Number: 1698}, 77},      // a socket's user is another one
		{&pgconn.PgError{Code: "28P01"}, 77},       // wrong password
		{&pgconn.PgError{Code: "3F000"}, 78},       // search_path names no schema
		{&pgconn.PgError{Code: "57P03"}, 69},       // starts
		{&redislock.ReplyError{Text: "ERR x"}, 78}, // a command that the server does not have
	}
	for _, tt := range tests {
		if got := exitCode(tt.err); got != tt.want {
			t.Errorf("exitCode(%v) = %d, want %d", tt.err, got, tt.want)
		}
	}
}

// TestEncode checks that JSON escapes the characters that a terminal may interpret and no others,
// and that a reader gets them back.
func TestEncode(t *testing.T) {
	const name = "ä<b>&😀\u009b31m\x7f\u202eb\x1b[0m\U000e0001"
	for _, indent := range []string{"", "  "} {
		text, err := encode(lockJSON{Name: name}, indent)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range strings.ReplaceAll(string(text), "\n", "") {
			if !unicode.IsGraphic(r) {
				t.Errorf("%q has %U in it", text, r)
			}
		}
		if !strings.Contains(string(text), "ä<b>&😀") {
			t.Errorf("%q escapes too much", text)
		}
		var back lockJSON
		if err := json.Unmarshal(text, &back); err != nil || back.Name != name {
			t.Errorf("read back: %q, %v, want %q", back.Name, err, name)
		}
	}
}

func TestMessageIsOneLine(t *testing.T) {
	for text, want := range map[string]string{"snib: a\nb\r\n": "a; b", "a:\n\tb: c\n\td: e": "a: b: c; d: e",
		"a\n \nb": "a; b", "a\tb": `a\tb`} {
		if got := message(errors.New(text)); got != want {
			t.Errorf("message(%q) = %q, want %q", text, got, want)
		}
	}
}
