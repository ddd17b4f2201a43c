package rows

import (
	"fmt"
	"io/fs"
	"reflect"
	"regexp"
	"strings"
)

var (
	capital = regexp.MustCompile(`[A-Z]`)

	// placeholder is the name of another file of the folder, or of a part that is given.
	placeholder = regexp.MustCompile(`\{([a-z]\w*)\}`)
)

// Statements returns a struct of statements. Its field ReadLive is the text of sql/read_live.sql
// without the comments. Each {part} of that is the one of this name in parts, or else the text of
// another file. A missing file is a mistake of a driver, so Statements panics.
func Statements[T any](files fs.FS, parts map[string]string) (all T) {
	fields := reflect.ValueOf(&all).Elem()
	for field := range fields.Type().Fields() {
		file := strings.ToLower(strings.TrimPrefix(capital.ReplaceAllString(field.Name, "_$0"), "_"))
		fields.FieldByIndex(field.Index).SetString(expand(files, file, parts))
	}
	return all
}

func expand(files fs.FS, name string, parts map[string]string) string {
	if text, ok := parts[name]; ok {
		return text
	}
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
		return expand(files, strings.Trim(match, "{}"), parts)
	})
}
