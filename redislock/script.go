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
// all their keys, which lie in one slot, except those of Redisson (script/redisson.lua). The files
// say what their arguments and answers are.
var (
	// fullScript serves any request.
	fullScript = rediskit.NewScript(scripts,
		"clock", "limits", "memory", "longlease", "identity", "grace", // of the server
		"keys", "token", "record", "mode", "entry", "hint", "hold", "queue", "place", // of a lock
		"acquire", "release", "check", "label", "withdraw", "redisson", "break", // requests
		"full")

	// extendScript extends only the locks' keys of exclusive leases, all with the same TTL.
	// renewScript extends leases of any kind with all that belongs to them.
	extendScript = rediskit.NewScript(scripts, "extend")
	renewScript  = rediskit.NewScript(scripts, "clock", "limits", "memory", "longlease", "renew")

	// forgetScript ends the grace period, and longestScript tells how long the next one would be.
	forgetScript  = rediskit.NewScript(scripts, "clock", "forget")
	longestScript = rediskit.NewScript(scripts, "clock", "longest")

	// snapshotScript reads locks, and foreignScript keys that may be locks of other libraries.
	// They write nothing.
	snapshotScript = rediskit.NewScript(scripts, "redisson", "snapshot")
	foreignScript  = rediskit.NewScript(scripts, "foreign")
)

//go:embed script/*.lua
var scripts embed.FS
