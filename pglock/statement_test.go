package pglock

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestStatements checks that all parts of statements exist, and that no file is left over.
func TestStatements(t *testing.T) {
	newStatements(pgx.Identifier{"any"})
	newSessionStatements()
	program, err := os.ReadFile("statement.go")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("sql/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("the files are %q, %v", files, err)
	}
	all := strings.ReplaceAll(string(program), `text("`, `text("session_`) + string(program)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all += string(text)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".sql")
		if !strings.Contains(all, `"`+name+`"`) && !strings.Contains(all, "{"+name+"}") {
			t.Errorf("%s is not used", file)
		}
	}
}
