package redislock

import (
	"context"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/internal/redisinfo"
)

// A Server is what a master says of itself.
type Server struct {
	// Info is what INFO answers, by the names of its fields.
	Info map[string]string

	// Settings are those of the configuration that locks rest on, by name: appendonly, appendfsync, save and
	// min-replicas-to-write. What may not be asked is missing.
	Settings map[string]string

	// Ahead is by how much the server's clock is ahead of this host's, to within half of RoundTrip.
	Ahead, RoundTrip time.Duration
}

// Servers asks each master what it is, for people who look for what is wrong with it.
func (d *Driver) Servers(ctx context.Context) ([]Server, error) {
	if d.life.Err() != nil {
		return nil, driver.ErrClosed
	}
	masters, err := d.conn.Masters(ctx)
	if err != nil {
		return nil, err
	}
	var all []Server
	for _, m := range masters {
		reply, err := m.Do(ctx, "INFO")
		if err != nil {
			return nil, fmt.Errorf("INFO: %w", err)
		}
		text, _ := reply.(string)
		s := Server{Info: redisinfo.Parse(text), Settings: make(map[string]string)}
		for _, name := range []string{"appendonly", "appendfsync", "save", "min-replicas-to-write"} {
			if value, err := setting(ctx, m, name); err == nil {
				s.Settings[name] = value
			}
		}
		if s.Ahead, s.RoundTrip, err = compareClocks(ctx, m); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// compareClocks asks a server for the time. The first question may have had to wait for a connection, so the fastest of a few counts.
func compareClocks(ctx context.Context, m Node) (ahead, roundTrip time.Duration, err error) {
	for i := range 5 {
		sent := time.Now()
		reply, err := m.Do(ctx, "TIME")
		took := time.Since(sent)
		if err != nil {
			return 0, 0, fmt.Errorf("TIME: %w", err)
		}
		parts, _ := reply.([]any)
		if len(parts) != 2 {
			return 0, 0, fmt.Errorf("TIME answered %v", reply)
		}
		seconds, ok1 := asFloat(parts[0])
		rest, ok2 := asFloat(parts[1])
		if !ok1 || !ok2 {
			return 0, 0, fmt.Errorf("TIME answered %v", reply)
		}
		if i == 0 || took < roundTrip {
			theirs := time.Unix(int64(seconds), int64(rest)*int64(time.Microsecond))
			ahead, roundTrip = theirs.Sub(sent.Add(took/2)), took
		}
	}
	return ahead, roundTrip, nil
}
