package redislock

import (
	"testing"

	"github.com/sniblock/snib/internal/livetest"
)

func TestLuaScripts(t *testing.T) {
	livetest.LuaScripts(t, map[string]string{
		"fastpath": fastPathScript, "full": fullScript, "extend": extendScript, "renew": renewScript,
		"forget": forgetScript, "longest": longestScript, "snapshot": snapshotScript, "endless": endlessScript,
	})
}
