package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/redisadmin"
)

// An Admin answers questions about the servers of a driver, and carries out what only their
// operator may decide. "snib doctor", "snib leaks" and "snib redis forget" are built on it.
type Admin struct{ d *Driver }

// Admin returns what is for people who operate the servers. It uses the driver's connections.
func (d *Driver) Admin() Admin { return Admin{d} }

// Servers asks each master for its state and settings.
func (a Admin) Servers(ctx context.Context) (all []redisadmin.Server, err error) {
	d := a.d
	defer func() { err = asUnavailable(err) }()
	if d.life.Over() {
		return nil, driver.ErrClosed
	}
	masters, err := d.conn.Masters(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range masters {
		info, err := infoOf(ctx, m)
		if err != nil {
			return nil, err
		}
		s := redisadmin.Server{Info: info, Settings: make(map[string]string)}
		for _, name := range []string{"appendonly", "appendfsync", "no-appendfsync-on-rewrite", "save",
			"min-replicas-to-write"} {
			if value, err := setting(ctx, m, name); err == nil {
				s.Settings[name] = value
			}
		}
		if s.Ahead, s.RoundTrip, err = compareClocks(ctx, m); err != nil {
			return nil, err
		}
		if !d.conn.IsCluster() {
			if s.LastToken, s.Clock, err = d.lastToken(ctx, m); err != nil && !errors.As(err, new(*ReplyError)) {
				return nil, err
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// lastToken returns the last token that a server has granted, and the server's time in the unit
// of tokens.
func (d *Driver) lastToken(ctx context.Context, m Node) (last, clock uint64, err error) {
	now, err := clockOf(ctx, m)
	if err != nil {
		return 0, 0, err
	}
	reply, err := m.Do(ctx, "HGET", d.sender.metaKey(0), "t")
	if err != nil {
		return 0, 0, fmt.Errorf("HGET: %w", err)
	}
	if len(reply) == 1 {
		f, _ := strconv.ParseFloat(reply[0], 64)
		last = uint64(max(0, min(f, math.MaxInt64)))
	}
	return last, uint64(now.UnixMicro()), nil
}

// clockOf returns the time of a server.
func clockOf(ctx context.Context, m Node) (time.Time, error) {
	parts, err := m.Do(ctx, "TIME")
	if err != nil || len(parts) != 2 {
		return time.Time{}, fmt.Errorf("TIME: %w", cmp.Or(err, badAnswerf("it answered %q", parts)))
	}
	seconds, err1 := strconv.ParseInt(parts[0], 10, 64)
	micros, err2 := strconv.ParseInt(parts[1], 10, 64)
	return time.UnixMicro(seconds*1e6 + micros), errors.Join(err1, err2)
}

// compareClocks compares a server's clock with ours. The first request may have to wait for a
// connection, so it takes the fastest of several.
func compareClocks(ctx context.Context, m Node) (ahead, roundTrip time.Duration, err error) {
	for i := range 5 {
		sent := time.Now()
		theirs, err := clockOf(ctx, m)
		took := time.Since(sent)
		if err != nil {
			return 0, 0, err
		}
		if i == 0 || took < roundTrip {
			ahead, roundTrip = theirs.Sub(sent.Add(took/2)), took
		}
	}
	return ahead, roundTrip, nil
}
