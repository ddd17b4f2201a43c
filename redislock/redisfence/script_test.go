package redisfence

import (
	"testing"

	"github.com/sniblock/snib/internal/livetest"
)

func TestLuaScripts(t *testing.T) {
	livetest.LuaScripts(t, map[string]string{"claim": admitScript + claimScript, "do": admitScript + doScript})
}
