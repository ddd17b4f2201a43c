package pgtest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest/pgtest"
)

func TestStart(t *testing.T) {
	began := time.Now()
	s := pgtest.Start(t)
	t.Logf("%s started in %v", s.URL(), time.Since(began))
	s.Kill()
	s.Restart()
	if !strings.Contains(s.Output(), "redo done") && !strings.Contains(s.Output(), "was not properly shut down") {
		t.Errorf("the server was killed, and says nothing of a recovery:\n%s", s.Output())
	}
	pooler := pgtest.Pool(t, s, "transaction")
	t.Logf("%s started in %v", pooler.URL(), time.Since(began))
}
