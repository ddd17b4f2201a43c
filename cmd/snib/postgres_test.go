package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// TestPostgresScripts runs the scripts that say the same of every store on PostgreSQL, and the one that is about it.
func TestPostgresScripts(t *testing.T) {
	for _, name := range sameScripts {
		sameOn(t, []string{name}, pgtest.Start(t).URL())
	}
	s := pgtest.Start(t)
	t.Run("postgres", func(t *testing.T) {
		runScripts(t, testscript.Params{Files: []string{filepath.Join("testdata", "postgres", "postgres.txtar")}},
			"SNIB_URL="+s.URL(), "ADDR="+s.Addr())
	})
}

// TestPostgresHangs stops the server under a command: snib ends the command before the lease ends, and itself soon after.
func TestPostgresHangs(t *testing.T) {
	store(t)
	server := pgtest.Start(t)
	t.Setenv("SNIB_URL", server.URL())
	p := start(t, "snib", "run", "--ttl", "2s", "deploy", "--", "sh", "-c", "echo held; exec sleep 60")
	p.says("held")
	server.Hang()
	defer server.Resume()
	began := time.Now()
	if code := p.wait(); code != 79 {
		t.Errorf("exit code = %d, want 79\n%s", code, p.out.String())
	}
	// The lease ends within 2 s, and what follows is bounded by the 5 s of an answer.
	if took := time.Since(began); took > 12*time.Second {
		t.Errorf("snib ended %v after its server hung, want at most 12 s", took)
	}
	t.Logf("snib ended %v after its server hung", time.Since(began))
}

// TestPostgresCrowd starts more commands than the server has connections for: all have their turn.
func TestPostgresCrowd(t *testing.T) {
	dir := store(t)
	t.Setenv("SNIB_URL", pgtest.Start(t, "max_connections=12").URL())
	const commands = 30
	file := filepath.Join(dir, "count")
	var all []*proc
	for range commands {
		all = append(all, start(t, "snib", "run", "crowded", "--", "sh", "-c", `n=$(cat "$0" 2>/dev/null || echo 0); echo $((n + 1)) > "$0"`, file))
	}
	for _, p := range all {
		if code := p.wait(); code != 0 {
			t.Errorf("exit code = %d, want 0\n%s", code, p.out.String())
		}
	}
	if got := strings.TrimSpace(read(file)); got != strconv.Itoa(commands) {
		t.Errorf("%d commands counted to %s", commands, got)
	}
}
