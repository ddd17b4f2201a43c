package snib_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
)

// Answer 409 if somebody else holds the lock, and 503 if nothing was begun because the store is
// unavailable. A store that fails during the transfer does not undo it.
func ExampleHeldError() {
	store := fault.Wrap(memlock.New(), fault.Plan{})
	locker, err := snib.New(store)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	during := func() {}
	transfer := func(context.Context, *snib.Lock) error {
		during()
		return nil
	}

	handler := func(w http.ResponseWriter, r *http.Request) {
		var held *snib.HeldError
		switch err := locker.With(snib.NoWait()).Do(r.Context(), "account/7", transfer); {
		case errors.As(err, &held):
			info, _ := held.Info(r.Context()) // without an answer, RetryAfter is 1 s
			w.Header().Set("Retry-After", strconv.Itoa(int(info.RetryAfter().Seconds())))
			http.Error(w, "the account is in use", http.StatusConflict)
		case errors.Is(err, snib.ErrUnavailable): // nothing was begun
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		case errors.Is(err, snib.ErrUnreleased): // it was done, and the lock is free within its TTL
		case errors.Is(err, snib.ErrLost):
			http.Error(w, "look whether the transfer was done before you try again", http.StatusInternalServerError)
		case err != nil:
			http.Error(w, "the transfer failed", http.StatusInternalServerError)
		}
	}
	request := func() {
		answer := httptest.NewRecorder()
		handler(answer, httptest.NewRequest(http.MethodPost, "/transfer", nil))
		fmt.Printf("%d, Retry-After %q\n", answer.Code, answer.Header().Get("Retry-After"))
	}

	request()
	lock, err := locker.Acquire(context.Background(), "account/7")
	if err != nil {
		fmt.Println(err)
		return
	}
	request()
	if err := lock.Release(); err != nil {
		fmt.Println(err)
		return
	}
	during = func() { store.Sever(fault.Fail) }
	request()
	request()
	// Output:
	// 200, Retry-After ""
	// 409, Retry-After "1"
	// 200, Retry-After ""
	// 503, Retry-After ""
}
