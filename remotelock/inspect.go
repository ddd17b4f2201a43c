package remotelock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
)

// hiddenID begins what stands for an id that the service does not show. For a hold, the token
// follows, and Break takes that unless it is 0; for a waiter, its process. No id of a client begins
// like that.
const hiddenID = "token:"

// IsHidden reports whether the ID of a [driver.Holding] or [driver.Waiting] stands for one that the
// service does not show.
func IsHidden(id string) bool { return strings.HasPrefix(id, hiddenID) }

// Status implements [driver.Inspector].
func (d *Driver) Status(ctx context.Context, name string) (driver.Status, error) {
	ctx, end, err := d.begin(ctx)
	if err != nil {
		return driver.Status{}, err
	}
	defer end()
	var l wire.Lock
	if err := d.client.get(ctx, wire.PathLock, url.Values{"name": {name}}, &l); err != nil {
		return driver.Status{}, err
	}
	return statusOf(&l), nil
}

// statusOf returns a lock as the contract has it.
func statusOf(l *wire.Lock) driver.Status {
	st := driver.Status{Name: l.Name, Shared: l.Mode == wire.ModeShared, Slots: l.Slots}
	for _, h := range l.Holders {
		to := driver.Holding{
			ID: h.ID, Token: h.Token, Holder: h.Holder(),
			Held: wire.Duration(h.Held), Left: wire.Duration(h.Left),
			Inherited: h.Inherited, Foreign: h.Foreign, Count: h.Count,
		}
		if to.ID == "" && !h.Unsure {
			to.ID = hiddenID + strconv.FormatUint(h.Token, 10)
		}
		if h.Endless {
			to.Left = driver.NoExpiry
		}
		for _, heir := range h.Heirs {
			to.Heirs = append(to.Heirs, heir.Holder())
		}
		st.Holders = append(st.Holders, to)
	}
	for _, w := range l.Waiters {
		to := driver.Waiting{ID: w.ID, Shared: w.Shared, Holder: w.Holder(), Waited: wire.Duration(w.Waited)}
		if to.ID == "" { // most processes have one waiter for a name
			to.ID = fmt.Sprintf("%s%s:%d", hiddenID, to.Holder.Host, to.Holder.PID)
		}
		st.Waiters = append(st.Waiters, to)
	}
	return st
}

// List implements [driver.Inspector].
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	ctx, end, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	body, err := d.openList(ctx, prefix)
	if err != nil {
		return err
	}
	defer body.Close()
	for lines := json.NewDecoder(body); ; {
		var l wire.Lock
		err := lines.Decode(&l)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("%w: the list of the lock service ends early", driver.ErrUnavailable)
		case !yield(statusOf(&l)):
			return nil
		}
	}
}

// openList returns the lines of a list, whose request ends with ctx. Only its beginning is bounded:
// a person may read it slowly.
func (d *Driver) openList(ctx context.Context, prefix string) (body io.ReadCloser, err error) {
	path := wire.PathLocks + "?" + url.Values{"prefix": {prefix}}.Encode()
	err = d.client.do(ctx, func(_ context.Context, server int) error {
		listing, stop := context.WithCancelCause(ctx)
		timer := time.AfterFunc(driver.AnswerTimeout, func() { stop(errNoAnswer) })
		defer timer.Stop()
		resp, err := d.client.open(listing, server, http.MethodGet, path, nil, wire.TypeLines)
		if err == nil {
			body = resp.Body
		}
		return err
	})
	return body, err
}

// Break implements [driver.Inspector].
func (d *Driver) Break(ctx context.Context, name, id string) error {
	msg := wire.Break{Name: name, ID: id, Reason: "asked for through remotelock"}
	if IsHidden(id) {
		token, err := strconv.ParseUint(id[len(hiddenID):], 10, 64)
		switch {
		case err != nil:
			return driver.ErrLost // no hold has it
		case token == 0:
			return driver.Invalidf("hold: it has no token, and the service shows its id only to those with the verb admin")
		}
		msg.ID, msg.Token = "", token
	}
	return d.call(ctx, wire.PathBreak, msg)
}

// Withdraw implements [driver.Inspector]: the service ends the place of a client that does not come
// back.
func (d *Driver) Withdraw(context.Context, string, string) error { return errors.ErrUnsupported }
