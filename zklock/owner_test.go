package zklock_test

import (
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"
)

// TestIsOwner checks that a multi with IsOwner writes for the current hold, and for no other.
func TestIsOwner(t *testing.T) {
	t.Parallel()
	server := shared(t)
	d, other := newDriver(t, []string{server.Addr()}), newDriver(t, []string{server.Addr()})
	conn := newTree(t, server.Addr()).Conn
	if _, err := conn.Create("/account", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	write := func(check *zk.CheckVersionRequest) error {
		_, err := conn.Multi(check, &zk.SetDataRequest{Path: "/account", Data: []byte("x"), Version: -1})
		return err
	}
	first := acquire(t, d, blockRequest("a", "one", 10))
	token := first.Grant().Token
	check := d.IsOwner("a", token)
	if err := errors.Join(write(check), write(d.IsOwner("a", token+9))); err != nil {
		t.Errorf("multi of the holder = %v", err)
	}
	for name, no := range map[string]*zk.CheckVersionRequest{
		"another token": d.IsOwner("a", token+10), "another name": d.IsOwner("b", token),
		"another driver": other.IsOwner("a", token),
	} {
		if err := write(no); !errors.Is(err, zk.ErrNoNode) {
			t.Errorf("multi for %s = %v, want ErrNoNode", name, err)
		}
	}
	release(t, first)
	acquire(t, other, request("a", "two"))
	if err := write(check); !errors.Is(err, zk.ErrNoNode) {
		t.Errorf("multi of the earlier hold = %v, want ErrNoNode", err)
	}
	_, stat, err := conn.Get("/account")
	if err != nil || stat.Version != 2 {
		t.Errorf("the data was written %d times (%v), want twice", stat.Version, err)
	}
}
