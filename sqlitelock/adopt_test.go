//go:build linux || darwin || windows

package sqlitelock

import (
	"testing"

	"github.com/sniblock/snib/internal/jobtest"
)

func TestAdopt(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	jobtest.Adopt(t, open(t, path), open(t, path))
}
