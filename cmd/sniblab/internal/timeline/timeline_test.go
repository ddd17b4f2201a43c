package timeline

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files")

// run runs a timeline in which A and B hold the lock at once.
func run(event func(Event)) {
	for i, e := range []Event{
		{Lane: "A", Text: "SET lock A NX PX 1000 → OK", Server: "lock = A"},
		{Lane: "A", Text: "HOLDS the lock", Holders: []string{"A"}},
		{Lane: "A", Text: "is slow", Holders: []string{"A"}},
		{Lane: "server", Text: "the TTL is over", Server: "lock is free", Holders: []string{"A"}},
		{Lane: "B", Text: "HOLDS the lock", Server: "lock = B", Holders: []string{"A", "B"}},
		{Lane: "A", Text: "DEL lock → 1", Server: "lock is free", Holders: []string{"B"}},
		{Lane: "B", Text: "<&> is done"},
	} {
		e.At = time.Duration(i) * 301 * time.Millisecond
		event(e)
	}
}

// TestGolden compares a timeline in each form with testdata.
func TestGolden(t *testing.T) {
	lanes := []string{"A", "B", "server"}
	tests := []struct {
		file  string
		write func(io.Writer)
	}{
		{"lines.txt", func(out io.Writer) {
			w := NewWriter(out, lanes)
			w.Begin()
			run(w.Event)
		}},
		{"drawing.svg", func(out io.Writer) {
			d := NewDrawing(lanes)
			d.Text("title", "A & B")
			d.Begin()
			run(d.Event)
			if _, err := d.WriteTo(out); err != nil {
				t.Error(err)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			var out bytes.Buffer
			tt.write(&out)
			file := filepath.Join("testdata", tt.file)
			if *update {
				if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if out.String() != string(want) {
				t.Errorf("got\n%s\nwant\n%s", &out, want)
			}
		})
	}
}

// TestDrawing checks that a drawing is well-formed XML, in which two bars overlap once.
func TestDrawing(t *testing.T) {
	var out bytes.Buffer
	d := NewDrawing([]string{"A", "B", "server"})
	d.Begin()
	run(d.Event)
	if _, err := d.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), `<rect class="many"`); got == 0 || got%2 != 0 {
		t.Errorf("%d parts of bars are red, want as many for A as for B", got)
	}
	checkXML(t, &out)
}

// checkXML checks that a text is well-formed XML.
func checkXML(t *testing.T, text io.Reader) {
	t.Helper()
	for decoder := xml.NewDecoder(text); ; {
		if _, err := decoder.Token(); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			return
		}
	}
}

// TestWriteError checks that a writer keeps the first error, and writes nothing more.
func TestWriteError(t *testing.T) {
	w := NewWriter(failing{}, []string{"A", "B", "server"})
	run(w.Event)
	if err := w.Err(); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Err = %v, want %v", err, io.ErrClosedPipe)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
