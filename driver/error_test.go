package driver_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
)

func TestInvalidf(t *testing.T) {
	err := driver.Invalidf("file: %w, which is number %d", fs.ErrNotExist, 1)
	if got, want := err.Error(), "invalid file: file does not exist, which is number 1"; got != want {
		t.Errorf("text = %q, want %q", got, want)
	}
	if !errors.Is(err, driver.ErrInvalid) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v does not match both ErrInvalid and what it wraps", err)
	}
	if errors.Is(err, driver.ErrClosed) {
		t.Errorf("%v matches ErrClosed", err)
	}
}

// An id is as good as a password, so a Status that is logged does not show it.
func TestIDsAreNotShown(t *testing.T) {
	const id = "horse-battery"
	st := driver.Status{
		Name:    "a",
		Holders: []driver.Holding{{ID: id, Token: 5, Holder: driver.Holder{Host: "web-1"}, Left: time.Second}},
		Waiters: []driver.Waiting{{ID: id}},
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "status", st, "holder", st.Holders[0])
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "status", st, "holder", st.Holders[0])
	for _, text := range []string{fmt.Sprint(st), fmt.Sprintf("%+v", st), fmt.Sprintf("%v", &st.Holders[0]),
		log.String()} {
		if strings.Contains(text, id) || !strings.Contains(text, "web-1") {
			t.Errorf("%q shows the id, or not the host", text)
		}
	}
	if text := st.Holders[0].String(); !strings.Contains(text, driver.Digest(id)) {
		t.Errorf("%q does not show the digest", text)
	}
	labeled := driver.Holder{Label: "a\nb"}
	for _, text := range []string{driver.Holding{Holder: labeled}.String(), driver.Waiting{Holder: labeled}.String()} {
		if strings.Contains(text, driver.Digest("")) || !strings.Contains(text, `Label:"a\nb"`) {
			t.Errorf("%q shows a digest of no id, or the label without quotes", text)
		}
	}
}
