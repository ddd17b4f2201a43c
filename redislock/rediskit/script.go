package rediskit

import (
	"crypto/sha1" //nolint:gosec // the digest by which Redis knows a script; nothing rests on its strength
	"encoding/hex"
	"io/fs"
	"strings"
	"sync"
)

// A Script is Lua that runs in Redis. Redis knows a script by its digest, so only the first use on
// each server sends the text.
type Script struct {
	joined func() (text, digest string) // on first use: most programs that link the scripts run few
}

// NewScript joins the files script/NAME.lua of fsys into a script. Its methods panic if a file is
// missing.
func NewScript(fsys fs.FS, names ...string) *Script {
	return &Script{sync.OnceValues(func() (text, digest string) {
		var joined strings.Builder
		for _, name := range names {
			part, err := fs.ReadFile(fsys, "script/"+name+".lua")
			if err != nil {
				panic(err)
			}
			joined.Write(part)
		}
		sum := sha1.Sum([]byte(joined.String())) //nolint:gosec // as above
		return joined.String(), hex.EncodeToString(sum[:])
	})}
}

// Text returns the whole script.
func (s *Script) Text() string {
	text, _ := s.joined()
	return text
}

// SHA1 returns the digest in hexadecimal, for EVALSHA.
func (s *Script) SHA1() string {
	_, digest := s.joined()
	return digest
}
