package rows

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// placeholder is the name of another file of the folder, or of a part that is given.
var placeholder = regexp.MustCompile(`\{([a-z]\w*)\}`)

// Statement returns the text of sql/name.sql without its comments. Each {part} is the given part of
// this name, or else the text of another file. A file that is missing, and a given part that is not
// used, are mistakes of a driver, so Statement panics; only the table may be unused.
func Statement(files fs.FS, name string, given map[string]string) string {
	used := map[string]bool{"table": true}
	text := expand(files, name, given, used)
	for part := range given {
		if !used[part] {
			panic(fmt.Sprintf("rows: the statement %s has no part %s", name, part))
		}
	}
	return text
}

func expand(files fs.FS, name string, given map[string]string, used map[string]bool) string {
	file, err := fs.ReadFile(files, "sql/"+name+".sql")
	if err != nil {
		panic(fmt.Sprintf("rows: there is neither a statement nor a part of a statement %s", name))
	}
	var lines []string
	for line := range strings.Lines(string(file)) {
		if !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return placeholder.ReplaceAllStringFunc(strings.TrimSpace(strings.Join(lines, "")), func(match string) string {
		part := strings.Trim(match, "{}")
		if text, ok := given[part]; ok {
			used[part] = true
			return text
		}
		return expand(files, part, given, used)
	})
}
