package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/redisfence"
)

// The keys of the account and of its mark are in one slot, in case the store is a Cluster.
const (
	balanceKey = "{paused-client}:balance"
	markKey    = "{paused-client}:fence"
)

// A redisStore keeps the account and the locks in one Redis.
type redisStore struct {
	client rueidis.Client
	guard  redisfence.Guard
	locks  snib.Driver
}

func openRedis(ctx context.Context, text string) (store, error) {
	options, err := rueidis.ParseURL(text)
	if bad := (*url.Error)(nil); errors.As(err, &bad) {
		err = bad.Err // without the URL, which may contain a password
	}
	if err != nil {
		return nil, fmt.Errorf("the URL of Redis: %w; want redis://[USER:PASSWORD@]HOST:PORT[/DB]", err)
	}
	options.DisableCache = true
	client, err := rueidis.NewClient(options)
	if err != nil {
		return nil, err
	}
	// A new server grants nothing for as long as a lease that it may have lost can
	// last. All locks here have the same TTL.
	locks, err := redislock.New(ctx, client, redislock.GraceFloor(ttl))
	if err != nil {
		client.Close()
		return nil, err
	}
	return &redisStore{client: client, locks: locks, guard: redisfence.Guard{Client: client, Key: markKey}}, nil
}

func (s *redisStore) Locks() snib.Driver { return s.locks }

func (s *redisStore) Read(ctx context.Context) (int, error) {
	balance, err := s.client.Do(ctx, s.client.B().Get().Key(balanceKey).Build()).AsInt64()
	return int(balance), err
}

func (s *redisStore) Write(ctx context.Context, balance int) error {
	return s.client.Do(ctx, s.client.B().Set().Key(balanceKey).Value(strconv.Itoa(balance)).Build()).Error()
}

func (s *redisStore) Open(ctx context.Context, g guard, lock *snib.Lock) (writer, error) {
	if g == noGuard {
		return s.Write, nil
	}
	handle, err := s.handle(ctx, g, lock)
	return func(ctx context.Context, balance int) error {
		_, err := handle.Do(ctx, "SET", balanceKey, strconv.Itoa(balance))
		return err
	}, err
}

func (s *redisStore) handle(ctx context.Context, g guard, lock *snib.Lock) (*redisfence.Handle, error) {
	if g == claimed {
		return s.guard.Open(ctx, lock)
	}
	mark, err := fence.Of(lock)
	if err != nil {
		return nil, err
	}
	return s.guard.Write(mark)
}

func (s *redisStore) Close() error {
	s.client.Close()
	return nil
}
