package goredis_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// TestBusyPool has the program use all connections of its client. The locks must not notice.
func TestBusyPool(t *testing.T) {
	addr := redistest.Single(t, redistest.Password(password)).Used().Addr()
	client := closed(t, redis.NewClient(&redis.Options{Addr: addr, Password: password, PoolSize: 1, ReadTimeout: -1}))
	d := open(t, client)
	blocked := client.Conn() // the only one
	defer blocked.Close()
	if err := blocked.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l, err := d.Acquire(t.Context(), driver.Request{Name: "busy", ID: "a", TTL: time.Minute})
		if err != nil {
			t.Fatalf("Acquire = %v", err)
		}
		if err := d.Renew(t.Context(), []driver.Lease{l})[0].Err; err != nil {
			t.Errorf("Renew = %v", err)
		}
		waiter := livetest.Waiting(t, d, driver.Request{Name: "busy", ID: "b", TTL: time.Minute})
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("Release = %v", err)
		}
		if err := waiter.Get(t).Release(t.Context()); err != nil {
			t.Errorf("Release of the waiter = %v", err)
		}
	}
}
