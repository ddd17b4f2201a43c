package livetest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// luaVar names the environment variable with the folder to which LuaScripts writes.
const luaVar = "SNIB_LUA"

// LuaScripts checks the Lua scripts of a package, by name, against the files in its folder
// script/: each file says at its head what it does, and belongs to a script.
//
// If the environment variable SNIB_LUA names a folder, LuaScripts writes the scripts there, so
// that luacheck can check them: it can't know what a file takes from those before it.
func LuaScripts(t *testing.T, scripts map[string]string) {
	t.Helper()
	files, err := filepath.Glob("script/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatalf("files in script/: %q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		Must(t, err, "read a script")
		if !strings.HasPrefix(string(text), "-- ") {
			t.Errorf("%s does not begin with a comment", file)
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(scripts)),
			func(script string) bool { return strings.Contains(script, string(text)) }) {
			t.Errorf("%s belongs to no script", file)
		}
	}
	folder := os.Getenv(luaVar)
	if folder == "" {
		return
	}
	pkg, err := os.Getwd()
	Must(t, err, "folder of the package")
	for name, script := range scripts {
		file := filepath.Join(folder, filepath.Base(pkg)+"."+name+".lua")
		Must(t, os.WriteFile(file, []byte(script), 0o600), "write a script")
	}
}
