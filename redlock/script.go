package redlock

import (
	"embed"

	"github.com/sniblock/snib/redislock/rediskit"
)

// The scripts implement a node. One call serves a batch of requests in order, each in one atomic
// step. docs/backends/redlock.md describes the keys; package internal/quorum says why the steps are
// as they are. The scripts need nothing newer than Redis 6.2.
//
// holdScript serves the requests that are about holding locks, and adminScript all others.
// The files say what the requests and the answers are.
var (
	holdScript  = rediskit.NewScript(scripts, "node", "batch", "waiter", "value", "serve", "commit")
	adminScript = rediskit.NewScript(scripts, "node", "show", "admit", "admin")
)

//go:embed script/*.lua
var scripts embed.FS
