package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redlock/internal/quorum"
	"github.com/sniblock/snib/redlock/redlockadmin"
)

// Admin returns what is for people who operate the servers. The options are those of [Open]. It
// contacts no server.
func Admin(servers []rueidis.ClientOption, opts ...Option) redlockadmin.Admin {
	return admin{servers, opts}
}

type admin struct {
	servers []rueidis.ClientOption
	opts    []Option
}

// Examine implements [redlockadmin.Admin].
func (a admin) Examine(ctx context.Context) ([]redlockadmin.NodeStatus, error) {
	var all []redlockadmin.NodeStatus
	err := a.withIdleDriver(func(d *Driver) error {
		all = d.examine(ctx)
		return nil
	})
	return all, err
}

// Init implements [redlockadmin.Admin].
func (a admin) Init(ctx context.Context) error {
	return a.withIdleDriver(func(d *Driver) error {
		blank, known := 0, 0
		for _, n := range d.examine(ctx) {
			switch n.State {
			case redlockadmin.NodeBlank:
				blank++
			case redlockadmin.NodeWaiting, redlockadmin.NodeAdmitted:
				known++
			default:
				return fmt.Errorf("%s is %v: %w", n.Address, n.State, n.Err)
			}
		}
		switch {
		case blank > 0 && known > 0:
			return driver.Invalidf(
				"state: %d of the nodes belong to the cluster already, and %d have forgotten it; clients admit those by themselves",
				known, blank)
		case blank == 0:
			return nil
		}
		for i := range d.nodes {
			answer, err := d.sendOne(ctx, i, codeInit)
			if err != nil {
				return err
			}
			if answer != "o" {
				return driver.Invalidf("state: another client initializes %s", d.nodes[i].address)
			}
		}
		return nil
	})
}

// Recover implements [redlockadmin.Admin].
func (a admin) Recover(ctx context.Context, floor uint64) error {
	// Tokens increase from floor, and Lua represents integers exactly below 2^53.
	if floor == 0 || floor >= 1<<52 {
		return driver.Invalidf("floor: %d, want 1 to 2^52-1", floor)
	}
	return a.withIdleDriver(func(d *Driver) error {
		admissions := make([]quorum.Admission, len(d.nodes))
		for i := range admissions {
			admissions[i] = d.params.Admission()
		}
		for {
			pause, err := d.recoverStep(ctx, admissions, floor)
			if pause == 0 {
				return err
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				why := fmt.Errorf("not all nodes that answer are admitted, which takes %v from their marking on: %w",
					d.params.Quarantine(), context.Cause(ctx))
				return errors.Join(why, err)
			}
		}
	})
}

// recoverStep takes the next step for each node. It returns when to take the one after it, or 0
// if there is none.
func (d *Driver) recoverStep(ctx context.Context, admissions []quorum.Admission,
	floor uint64) (pause time.Duration, err error) {
	admitted := 0
	var errs []error
	for i := range d.nodes {
		next, done, err := d.admit(ctx, &admissions[i], i, floor)
		switch {
		case errors.Is(err, driver.ErrInvalid):
			return 0, err
		case done:
			admitted++
			continue
		case err != nil:
			errs = append(errs, err)
			continue
		}
		if pause == 0 || next < pause {
			pause = max(next, time.Millisecond)
		}
	}
	if pause == 0 && admitted < d.params.Quorum() {
		return checkInterval, fmt.Errorf("%w: %w", errNoMajority, errors.Join(errs...))
	}
	return pause, nil
}

// withIdleDriver calls run with a driver that does nothing in the background but send commands.
func (a admin) withIdleDriver(run func(d *Driver) error) error {
	d, err := newDialingDriver(a.servers, a.opts)
	if err != nil {
		return err
	}
	for _, n := range d.nodes {
		d.background.Go(n.run)
	}
	err = run(d)
	_ = d.Close() // never fails
	return err
}

// examine asks each node for its state.
func (d *Driver) examine(ctx context.Context) []redlockadmin.NodeStatus {
	p := d.newPoll(nil)
	p.sendToAll(codeShowNode, noLock())
	replies := p.wait(ctx, dialTimeout)
	all := make([]redlockadmin.NodeStatus, len(d.nodes))
	for i, n := range d.nodes {
		all[i].Address = n.address
		if err := replies[i].err; err != nil {
			all[i].Err = err
			if errors.Is(err, driver.ErrInvalid) {
				all[i].State = redlockadmin.NodeRefused
			}
			continue
		}
		s, err := d.parseStanding(i, replies[i].text)
		switch {
		case err != nil:
			all[i].State, all[i].Err = redlockadmin.NodeRefused, err
		case s.Cluster == "":
			all[i].State = redlockadmin.NodeBlank
		case s.Admitted == s.Run:
			all[i].State = redlockadmin.NodeAdmitted
			all[i].Counters = d.checkCounters(ctx, i)
		default:
			all[i].State = redlockadmin.NodeWaiting
		}
	}
	return all
}

// checkCounters returns an error that says which counter of a node can't be right, or nil.
func (d *Driver) checkCounters(ctx context.Context, i int) error {
	text, err := d.sendOne(ctx, i, codeCounters)
	if err != nil {
		return nil //nolint:nilerr // its state is known; that it fell silent since is told the next time
	}
	_, c, err := parseCounters(text)
	if err != nil {
		return err
	}
	most := max(driver.NextToken(0, time.Now()), c[floorStripe]) + uint64(maxAheadOfClock.Microseconds())
	if greatest := slices.Max(c[:stripes]); greatest > most {
		return fmt.Errorf("c%d, the greatest counter, is more than a day ahead of the clock: %d",
			slices.Index(c, greatest), greatest)
	}
	return nil
}

// maxAheadOfClock is how far a counter may be ahead of the clock. The scripts have the
// same limit.
const maxAheadOfClock = 24 * time.Hour
