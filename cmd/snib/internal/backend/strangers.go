package backend

import (
	"context"
	"errors"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/redisadmin"
)

// A Stranger is a key that another lock library left in the store and that will never end by
// itself.
type Stranger = redisadmin.Stranger

// Strangers calls yield for each key that another lock library left behind, until yield returns
// false. It searches only Redis.
func (s *Store) Strangers(ctx context.Context, prefix string, yield func(Stranger) bool) error {
	d, ok := s.Driver.(*redislock.Driver)
	if !ok {
		return nil
	}
	return withURL(s.URL, d.Admin().Strangers(ctx, prefix, yield))
}

// Foreign calls yield for each lock of another lock library in Redis, until yield returns false. It
// returns [errors.ErrUnsupported] if the store is not Redis.
func (s *Store) Foreign(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	d, ok := s.Driver.(*redislock.Driver)
	if !ok {
		return errors.ErrUnsupported
	}
	return withURL(s.URL, d.Admin().Foreign(ctx, prefix, yield))
}
