package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// startWatch starts snib watch. The function that it returns waits until the last event has one
// of the given kinds, and returns the events since its last call.
func startWatch(t *testing.T, args ...string) (until func(kinds ...string) []watchEvent) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "events")
	start(t, append([]string{"sh", "-c", `exec snib watch -o json "$@" >"$0"`, file}, args...)...)
	from := 0
	return func(kinds ...string) []watchEvent {
		t.Helper()
		var all []watchEvent
		await(t, fmt.Sprintf("%q event", kinds), func() bool {
			lines := strings.Split(read(file), "\n")
			all = nil
			for _, line := range lines[from : len(lines)-1] {
				var e watchEvent
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatalf("%v: %s", err, line)
				}
				all = append(all, e)
			}
			return len(all) > 0 && slices.Contains(kinds, all[len(all)-1].Event)
		})
		from += len(all)
		return all
	}
}

// A watchEvent is a line of snib watch.
type watchEvent struct {
	Schema, Event, Name string
	Time                time.Time
	Holder, From        *struct {
		Token uint64
		PID   int
		Label string
	}
}

// wantEvents checks the kinds of events.
func wantEvents(t *testing.T, all []watchEvent, kinds ...string) {
	t.Helper()
	var got []string
	for _, e := range all {
		got = append(got, e.Event)
		if e.Schema != "snib.watch/1" || time.Since(e.Time).Abs() > time.Minute {
			t.Errorf("event %+v: its schema or time is wrong", e)
		}
	}
	if !slices.Equal(got, kinds) {
		t.Errorf("events = %q, want %q", got, kinds)
	}
}

// TestWatch follows a lock through its life, on stores that end the lease of a dead
// holder in different ways.
func TestWatch(t *testing.T) {
	t.Parallel()
	onSQLiteAndRedis(t, func(t *testing.T, store string) {
		_, stop := startHolder(t, "deploy")
		until := startWatch(t, "deploy")
		held := until("held")
		wantEvents(t, held, "held")
		dir := t.TempDir()
		next := start(t, "snib", "run", "deploy", "--", "hold", dir+"/ready", dir+"/stop")
		await(t, "waiter", func() bool { return countWaiters(t, "deploy") > 0 })
		stop()
		wantHandOver(t, store, until("handed-over", "acquired"), held[0].Holder.Token, next.Process.Pid)
		touch(t, dir+"/stop")
		wantEvents(t, until("released"), "released")
		mustSnib(t, "lock", "deploy", "--ttl", "8s") // in which the watch sees it
		wantEvents(t, until("lost"), "acquired", "lost")
	})
}

// TestWatchBeforeTheStore checks that a watch sees a store that is created later.
func TestWatchBeforeTheStore(t *testing.T) {
	dir := newStore(t)
	until := startWatch(t)
	await(t, "store", func() bool { return exists(filepath.Join(dir, "snib", "locks.db")) })
	mustSnib(t, "lock", "deploy", "--ttl", "10m")
	until("acquired", "held")
}

// wantHandOver checks the events of a hand-over to a process.
func wantHandOver(t *testing.T, store string, all []watchEvent, from uint64, to int) {
	t.Helper()
	last := all[len(all)-1]
	// The waiter takes the lock by itself, so a snapshot may fall between the release and that.
	if store == "SQLite" && last.Event == "acquired" {
		wantEvents(t, all, "released", "acquired")
		last.From = all[0].Holder
	} else {
		wantEvents(t, all, "handed-over")
	}
	if last.Holder == nil || last.From == nil || last.From.Token != from || last.Holder.Token <= from ||
		last.Holder.PID != to ||
		!strings.HasPrefix(last.Holder.Label, "hold by ") {
		t.Errorf("hand-over = %+v, from %+v to %+v", last, last.From, last.Holder)
	}
}

// TestWatchPrefix watches all locks whose names have the prefix, and no others.
func TestWatchPrefix(t *testing.T) {
	t.Parallel()
	redisStore(t)
	mustSnib(t, "lock", "jobs/first", "--ttl", "10m")
	until := startWatch(t, "jobs/")
	wantEvents(t, until("held"), "held") // the watch has begun
	for i := range 3 {
		for _, name := range []string{fmt.Sprint("other/", i), fmt.Sprint("jobs/", i)} {
			mustSnib(t, "lock", name, "--ttl", "10m")
		}
		for _, e := range until("acquired") {
			if !strings.HasPrefix(e.Name, "jobs/") {
				t.Errorf("it tells of %q", e.Name)
			}
		}
	}
}

// TestWatchSurvivesAnOutage checks that a short outage of the store is reported,
// and that the watch goes on.
func TestWatchSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	node, dir := redisStore(t)
	log := filepath.Join(dir, "log")
	start(t, "sh", "-c", `exec snib watch deploy -o json >"$0" 2>&1`, log)
	mustSnib(t, "lock", "deploy", "--ttl", "1h")
	awaitText(t, log, `"deploy"`)
	node.Kill()
	awaitText(t, log, "still watching")
	node.Restart()
	node.Used()
	awaitText(t, log, `"released"`) // the server has forgotten everything
	if n := strings.Count(read(log), "still watching"); n != 1 {
		t.Errorf("the outage is told of %d times", n)
	}
}
