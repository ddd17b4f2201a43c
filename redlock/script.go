package redlock

import (
	"crypto/sha1" //nolint:gosec // the digest by which Redis knows a script; nothing rests on its strength
	"embed"
	"encoding/hex"

	"github.com/sniblock/snib/redislock/rediskit"
)

// A script is Lua that runs in Redis. One call serves a batch of requests in order, each in
// one atomic step.
//
// The scripts implement a node. docs/backends/redlock.md describes the keys and the requests;
// package internal/quorum says why the steps are as they are. The scripts need nothing newer
// than Redis 6.2.
type script struct {
	text string
	sha1 string // in hexadecimal, for EVALSHA
}

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return &script{text: text, sha1: hex.EncodeToString(sum[:])}
}

// holdScript serves the frequent requests, which are about holding locks. adminScript
// serves all others. The files say what the requests and the answers are.
var (
	holdScript  = newScript(rediskit.JoinScript(scripts, "node", "batch", "waiter", "value", "serve", "commit"))
	adminScript = newScript(rediskit.JoinScript(scripts, "node", "show", "admit", "admin"))
)

//go:embed script/*.lua
var scripts embed.FS
