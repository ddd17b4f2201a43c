package mysqllock

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestStatements checks that each file of the folder sql is used.
func TestStatements(t *testing.T) {
	used := map[string]bool{}
	var use func(name string)
	use = func(name string) {
		used[name] = true
		file, err := files.ReadFile("sql/" + name + ".sql")
		if err != nil {
			return // what is filled in later
		}
		for _, part := range regexp.MustCompile(`{(\w+)}`).FindAllStringSubmatch(string(file), -1) {
			use(part[1])
		}
	}
	for _, field := range fieldNames() {
		use(fileName(field))
	}
	all, err := filepath.Glob("sql/*.sql")
	if err != nil || len(all) == 0 {
		t.Fatalf("files = %v, %v", all, err)
	}
	for _, file := range all {
		if name := strings.TrimSuffix(filepath.Base(file), ".sql"); !used[name] {
			t.Errorf("%s is not used", file)
		}
	}
}
