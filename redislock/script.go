package redislock

import (
	"embed"

	"github.com/sniblock/snib/redislock/rediskit"
)

// The scripts are Lua that runs in Redis. Redis knows a script by its digest, so only the first
// use on each server sends the text.
//
// The scripts are the backend's state machine; docs/backends/redislock.md describes the keys
// that they write. They use nothing beyond Redis 6.2, go by the server's clock only, and name
// all their keys, which lie in one slot. The files say what their arguments and answers are.
var (
	// requestScript serves a batch of requests.
	requestScript = rediskit.NewScript(scripts,
		"clock", "limits", "memory", "grace", "grant", "acquire", "release", // what a free lock needs
		"contended", "entry", "found", "hint", "queue", "contend", // a held one
		"rare", "longlease", "identity", "shared", "yield", "endhold", "holder", "verify", "withdraw", "break", "made",
		"batch")

	// renewScript extends leases.
	renewScript = rediskit.NewScript(scripts, "clock", "limits", "grant", "entry", "longlease", "found", "renew")

	// forgetScript ends the grace period.
	forgetScript = rediskit.NewScript(scripts, "clock", "forget")

	// snapshotScript reads locks, and valuesScript reads keys that may be locks of snib or of other
	// libraries. They write nothing.
	snapshotScript = rediskit.NewScript(scripts, "master", "snapshot")
	valuesScript   = rediskit.NewScript(scripts, "master", "values")
)

//go:embed script/*.lua
var scripts embed.FS
