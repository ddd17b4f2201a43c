package redislock

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// seen is what lookScript says of a lock.
type seen struct {
	Type     string   `json:"type"`
	Left     int64    `json:"left"` // milliseconds; -1 if the key has no end, -2 if there is none
	Now      string   `json:"now"`
	Value    string   `json:"value"`
	Recorded bool     `json:"recorded"`
	Record   string   `json:"record"`
	Records  []string `json:"records"`
	Line     []string `json:"line"`
	Requests []string `json:"requests"`
}

// Status implements [driver.Inspector]. A key of a stranger is shown as a hold whose token is 0, and one without an end as if it lasted
// ten years more.
func (d *Driver) Status(ctx context.Context, name string) (driver.Status, error) {
	all, err := d.look(ctx, []string{name})
	if err != nil {
		return driver.Status{}, err
	}
	return all[0].Status, nil
}

// A looked is a lock as it was seen.
type looked struct {
	driver.Status
	Recorded bool // it has a record, which may outlive the hold
}

// look returns the status of each lock, all of one slot.
func (d *Driver) look(ctx context.Context, names []string) ([]looked, error) {
	if d.life.Err() != nil {
		return nil, driver.ErrClosed
	}
	c := Call{Script: d.looker}
	for _, name := range names {
		keys := keysOf(name)
		c.Keys = append(c.Keys, keys[:]...)
	}
	r := d.ask(ctx, c)[0]
	if r.Err != nil {
		return nil, r.Err
	}
	if len(r.Lines) != len(names) {
		return nil, fmt.Errorf("the script gave %d answers for %d locks", len(r.Lines), len(names))
	}
	all := make([]looked, len(names))
	for i, name := range names {
		var s seen
		if err := json.Unmarshal([]byte(r.Lines[i]), &s); err != nil {
			return nil, fmt.Errorf("the script's answer for %q: %w", name, err)
		}
		all[i] = looked{s.status(name), s.Recorded}
	}
	return all, nil
}

func (s seen) status(name string) driver.Status {
	st := driver.Status{Name: name}
	now, _ := strconv.ParseInt(s.Now, 10, 64)
	left := time.Duration(s.Left) * time.Millisecond
	if s.Left == -1 {
		left = maxTTL
	}
	slots, isSemaphore := strings.CutPrefix(s.Value, "snib:slots:")
	switch {
	case s.Type != "string":
	case isSemaphore || s.Value == "snib:shared":
		st.Slots, _ = strconv.Atoi(slots)
		st.Shared = !isSemaphore
		for _, text := range s.Records {
			if end, r, ok := entry(text); ok && end > now {
				st.Holders = append(st.Holders, r.holding(now, micros(end-now)))
			}
		}
		slices.SortFunc(st.Holders, func(a, b driver.Holding) int { return int(int64(a.Token) - int64(b.Token)) })
	default:
		var r request
		if json.Unmarshal([]byte(s.Record), &r) == nil && (r.Owner == s.Value || s.Value == "snib:kept") {
			st.Holders = []driver.Holding{r.holding(now, left)}
		} else {
			st.Holders = []driver.Holding{{Owner: s.Value, Left: left}}
		}
		st.Holders[0].Endless = s.Left == -1 // where several hold, each has an end of its own
	}

	for i, text := range s.Requests {
		stirred, r, ok := entry(text)
		since, err := strconv.ParseFloat(s.Line[i], 64)
		if !ok || err != nil {
			continue
		}
		shared := r.Mode == "s"
		if len(st.Holders) == 0 && i == 0 {
			st.Shared = shared
			st.Slots, _ = strconv.Atoi(r.Mode)
		}
		st.Waiters = append(st.Waiters, driver.Waiting{
			Owner: r.Owner, Shared: shared, Holder: r.holder(), Waited: max(0, micros(now-int64(since))),
			Silent: max(1, micros(now-stirred)),
		})
	}
	return st
}

func (r request) holding(now int64, left time.Duration) driver.Holding {
	return driver.Holding{Owner: r.Owner, Token: r.Token, Holder: r.holder(), Held: max(0, micros(now-r.Since)), Left: left}
}

// Break implements [driver.Inspector]. A stranger's hold has the token 0.
func (d *Driver) Break(ctx context.Context, name, owner string, token uint64) error {
	if d.life.Err() != nil {
		return driver.ErrClosed
	}
	keys := keysOf(name)
	answer, err := d.insist(ctx, d.slot(name), &order{
		keys: &keys, code: "b", n: 2, args: [6]string{owner, strconv.FormatUint(token, 10)},
	})
	if err == nil && answer == "l" {
		err = driver.ErrLost
	}
	return err
}
