package backend

import (
	"context"
	"fmt"

	"github.com/sniblock/snib/redislock"
)

// A Stranger is something that another lock library left in the store and that nothing will ever end.
type Stranger struct {
	Key, Library, Problem string

	// Value, if not empty, is what Break takes as owner, with the token 0, to delete the key.
	Value string
}

// Strangers calls yield for what other lock libraries left behind, until that returns false. Only Redis is searched.
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
