package rows

import (
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// placeholder is the name of another file of the folder, or of a part that is given.
var placeholder = regexp.MustCompile(`\{([a-z]\w*)\}`)

// Statement returns the text of sql/name.sql without its comments. Each {part} is the shared part
// of this name, or the one that is given, as a name and a text, or else the text of another file.
// A missing file and a given part that is not used are mistakes of a driver, so Statement panics.
func Statement(files fs.FS, name string, shared map[string]string, given ...string) string {
	parts, used := map[string]string{}, map[string]bool{}
	maps.Copy(parts, shared)
	for pair := range slices.Chunk(given, 2) {
		parts[pair[0]] = pair[1]
	}
	text := expand(files, name, parts, used)
	for pair := range slices.Chunk(given, 2) {
		if !used[pair[0]] {
			panic(fmt.Sprintf("rows: the statement %s has no part %s", name, pair[0]))
		}
	}
	return text
}

func expand(files fs.FS, name string, parts map[string]string, used map[string]bool) string {
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
		if text, ok := parts[part]; ok {
			used[part] = true
			return text
		}
		return expand(files, part, parts, used)
	})
}
