package redislock

import (
	"embed"
	"slices"

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
	// fullScript acquires and releases locks, and rareScript serves all other requests. Redis makes
	// every function of a script anew in each call, so the two have only what they need.
	fullScript = requestScript("place", "acquire", "release")
	rareScript = requestScript("release", "check", "holder", "withdraw", "redisson", "break")

	// renewScript extends leases.
	renewScript = rediskit.NewScript(scripts, "clock", "limits", "longlease", "keys", "entry", "mode", "grant", "renew")

	// forgetScript ends the grace period, and longestScript tells how long the next one would be.
	forgetScript  = rediskit.NewScript(scripts, "clock", "forget")
	longestScript = rediskit.NewScript(scripts, "clock", "longest")

	// snapshotScript reads locks, ownScript finds them, and foreignScript reads keys that may be locks
	// of other libraries. They write nothing.
	snapshotScript = rediskit.NewScript(scripts, "redisson", "snapshot")
	ownScript      = rediskit.NewScript(scripts, "own")
	foreignScript  = rediskit.NewScript(scripts, "foreign")
)

// requestScript returns a script that serves a batch of requests, which the given files handle.
func requestScript(files ...string) *Script {
	return rediskit.NewScript(scripts, slices.Concat([]string{
		"clock", "limits", "memory", "longlease", "identity", "grace", // of the server
		"keys", "token", "entry", "mode", "grant", "hint", "hold", "queue", // of a lock
	}, files, []string{"full"})...)
}

//go:embed script/*.lua
var scripts embed.FS
