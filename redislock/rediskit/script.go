package rediskit

import (
	"crypto/sha1" //nolint:gosec // the digest by which Redis knows a script; nothing rests on its strength
	"encoding/hex"
	"io/fs"
	"strings"
)

// A Script is Lua that runs in Redis. Redis knows a script by its digest, so only the first use on
// each server sends the text.
type Script struct {
	Text string
	SHA1 string // in hexadecimal, for EVALSHA
}

// NewScript joins the files script/NAME.lua of fsys into a script. It panics if a file is missing.
func NewScript(fsys fs.FS, names ...string) *Script {
	var text strings.Builder
	for _, name := range names {
		part, err := fs.ReadFile(fsys, "script/"+name+".lua")
		if err != nil {
			panic(err)
		}
		text.Write(part)
	}
	sum := sha1.Sum([]byte(text.String())) //nolint:gosec // as above
	return &Script{Text: text.String(), SHA1: hex.EncodeToString(sum[:])}
}
