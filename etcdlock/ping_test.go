package etcdlock_test

import (
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

func TestPing(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	jobtest.Ping(t, open(t, dial(t, server)), server)
}
