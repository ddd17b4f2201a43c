package snib_test

import (
	"context"
	"fmt"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/memlock"
)

// A user checks out a document for half an hour. Another process, which handles a later request of
// the same user, checks it in.
func ExampleLocker_Adopt() {
	store := new(memlock.Store) // in production a server that all processes reach
	checkOut, err := snib.New(store.Open(), snib.Label("checked out by alice"), snib.Detached(), snib.TTL(30*time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	lock, err := checkOut.TryAcquire(context.Background(), "document/42")
	if err != nil {
		fmt.Println(err)
		return
	}
	id := lock.ID()  // keep it in the user's session: it is as secret as a password
	checkOut.Close() // the process may end; the lock stays

	checkIn, err := snib.New(store.Open())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer checkIn.Close()
	lock, err = checkIn.Adopt(context.Background(), "document/42", id)
	if err != nil {
		fmt.Println(err) // with ErrLost, the half hour was over
		return
	}
	fmt.Println("checked in:", lock.Release() == nil)
	// Output: checked in: true
}
