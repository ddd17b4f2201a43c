package backend

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib/redislock/redisadmin"
)

// TestDurableFinding breaks what durable=aof needs, one thing at a time.
func TestDurableFinding(t *testing.T) {
	tests := []struct {
		name, key, value string // in the settings, or in INFO
		verdict          Verdict
	}{
		{"Sound", "", "", Good},
		{"NoFile", "appendonly", "no", Unmet},
		{"Everysec", "appendfsync", "everysec", Unmet},
		{"NotDuringRewrite", "no-appendfsync-on-rewrite", "yes", Unmet},
		{"NotKnown", "appendfsync", "", Unmet},
		{"FullDisk", "aof_last_write_status", "err", Unmet},
		{"Replicas", "connected_slaves", "1", Unmet},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := redisadmin.Server{
				Info:     map[string]string{"aof_last_write_status": "ok", "connected_slaves": "0"},
				Settings: map[string]string{"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"},
			}
			for _, m := range []map[string]string{s.Info, s.Settings} {
				if _, ok := m[tt.key]; ok {
					m[tt.key] = tt.value
				}
			}
			if f := durableFinding(s); f.Verdict != tt.verdict || f.Value == "" || (f.Verdict == Good) != (f.Advice == "") {
				t.Errorf("finding = %+v, want %v", f, tt.verdict)
			}
		})
	}
}

// TestRedisFindings breaks one setting at a time, and checks which finding reports it.
func TestRedisFindings(t *testing.T) {
	sound := func() redisadmin.Server {
		return redisadmin.Server{
			Info: map[string]string{
				"redis_version": "7.0.15", "redis_mode": "standalone", "uptime_in_seconds": "9", "maxmemory": "0",
				"maxmemory_policy": "noeviction", "connected_slaves": "1", "master_repl_offset": "5000000", "slave0": "ip=1,port=2,state=online,offset=4999990,lag=0",
			},
			Settings:  map[string]string{"appendonly": "yes", "appendfsync": "always", "save": "", "min-replicas-to-write": "1"},
			RoundTrip: time.Millisecond,
		}
	}
	tests := []struct {
		name     string
		info     map[string]string
		settings map[string]string
		ahead    time.Duration
		check    string // "" if all is well
		verdict  Verdict
	}{
		{name: "Sound"},
		{name: "Evicts", info: map[string]string{"maxmemory": "100", "maxmemory_policy": "volatile-ttl"}, check: "maxmemory-policy", verdict: Unmet},
		{name: "WouldEvict", info: map[string]string{"maxmemory_policy": "volatile-ttl"}},
		{name: "Bounded", info: map[string]string{"maxmemory": "100"}},
		{name: "Fsync", settings: map[string]string{"appendfsync": "everysec"}, check: "persistence", verdict: Note},
		{name: "NoFile", settings: map[string]string{"appendonly": "no"}, check: "persistence", verdict: Note},
		{name: "SplitBrain", settings: map[string]string{"min-replicas-to-write": "0"}, check: "min-replicas-to-write", verdict: Unmet},
		{name: "ClockAhead", ahead: 1100 * time.Millisecond, check: "clock", verdict: Unmet},
		{name: "ClockBehind", ahead: -1100 * time.Millisecond, check: "clock", verdict: Unmet},
		{name: "ClockMayBeStepped", ahead: -900 * time.Millisecond, check: "clock", verdict: Note},
		{name: "ClockNear", ahead: -120 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := sound()
			maps.Copy(s.Info, tt.info)
			maps.Copy(s.Settings, tt.settings)
			s.Ahead = tt.ahead
			var problems []Finding
			for _, f := range redisFindings(s) {
				if f.Value == "" || (f.Verdict == Good) != (f.Advice == "") {
					t.Errorf("finding without words: %+v", f)
				}
				if f.Verdict != Good {
					problems = append(problems, f)
				}
			}
			if tt.check == "" && len(problems) > 0 || tt.check != "" && (len(problems) != 1 || problems[0].Check != tt.check || problems[0].Verdict != tt.verdict) {
				t.Errorf("findings = %+v, want %s: %s", problems, tt.check, tt.verdict)
			}
		})
	}
	unknown := sound()
	unknown.Settings = nil
	notes := slices.DeleteFunc(redisFindings(unknown), func(f Finding) bool { return f.Verdict != Note })
	if len(notes) != 2 {
		t.Errorf("where settings may not be read, the notes are %+v, want two", notes)
	}
}

// TestTells checks that a finding covers the driver's warning about the same setting, whichever
// server the finding is about.
func TestTells(t *testing.T) {
	const warning = "maxmemory-policy is allkeys-lru: Redis may evict locks"
	for check, want := range map[string]bool{"maxmemory-policy": true, "server 2: maxmemory-policy": true, "maxmemory": false, "clock": false} {
		if got := (Finding{Check: check}).Tells(warning); got != want {
			t.Errorf("Tells of %q = %v, want %v", check, got, want)
		}
	}
}
