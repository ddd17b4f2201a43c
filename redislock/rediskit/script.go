package rediskit

import (
	"io/fs"
	"strings"
)

// JoinScript returns the files script/NAME.lua of fsys as one script. It panics if one of them
// is missing, which the first run of any test shows.
func JoinScript(fsys fs.FS, names ...string) string {
	var script strings.Builder
	for _, name := range names {
		text, err := fs.ReadFile(fsys, "script/"+name+".lua")
		if err != nil {
			panic(err)
		}
		script.Write(text)
	}
	return script.String()
}
