package backend

import (
	"context"
	"fmt"

	"github.com/sniblock/snib/redislock"
)

// A Stranger is a key that another lock library left in the store and that will never end by
// itself.
type Stranger struct {
	Key, Library, Problem string

	// Value, if not empty, is the owner that Break takes, with the token 0, to delete the key.
	Value string
}

// Strangers calls yield for each key that another lock library left behind, until yield returns
// false. It searches only Redis.
func (s *Store) Strangers(ctx context.Context, prefix string, yield func(Stranger) bool) error {
	d, ok := s.Driver.(*redislock.Driver)
	if !ok {
		return nil
	}
	err := d.Strangers(ctx, prefix, func(f redislock.Stranger) bool { return yield(Stranger(f)) })
	if err != nil {
		return fmt.Errorf("%s: %w", s.URL, err)
	}
	return nil
}
