package mysqltest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

func TestStart(t *testing.T) {
	began := time.Now()
	s := mysqltest.Start(t)
	t.Logf("%s started in %v", s.DSN("timeout=1s", "parseTime=true"), time.Since(began))
	s.Kill()
	s.Restart()
	if got := strings.Count(s.Output(), "ready for connections"); got != 2 {
		t.Errorf("the server says %d times that it is ready, want 2:\n%s", got, s.Output())
	}
}
