package redislock

import (
	"testing"

	"github.com/sniblock/snib/internal/livetest"
)

func TestLuaScripts(t *testing.T) {
	livetest.LuaScripts(t, map[string]string{
		"request": requestScript.Text(), "renew": renewScript.Text(),
		"forget": forgetScript.Text(), "snapshot": snapshotScript.Text(), "values": valuesScript.Text(),
	})
}
