package goredis_test

import (
	"context"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/redislock/goredis"
)

// A program that uses go-redis can lock through the client that it has.
func Example() {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{os.Getenv("REDIS_ADDR")}})
	defer client.Close()

	d, err := goredis.New(context.Background(), client)
	if err != nil {
		fmt.Println(err)
		return
	}
	locker, err := snib.New(d)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close() // leaves client open

	err = locker.Do(context.Background(), "invoices/2026-11", func(_ context.Context, lock *snib.Lock) error {
		fmt.Println("holding", lock.Name())
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
}
