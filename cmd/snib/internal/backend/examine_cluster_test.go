package backend

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/redisadmin"
	"github.com/sniblock/snib/redlock/redlockadmin"
)

// problems returns the findings that are not Good, as "verdict check". It checks that only
// those have advice, and that all have a value.
func problems(t *testing.T, all []Finding) []string {
	t.Helper()
	var bad []string
	for _, f := range all {
		if f.Check == "" || f.Value == "" || (f.Verdict == Good) != (f.Advice == "") {
			t.Errorf("finding without words: %+v", f)
		}
		if f.Verdict != Good {
			bad = append(bad, string(f.Verdict)+" "+f.Check)
		}
	}
	slices.Sort(bad)
	return bad
}

func wantProblems(t *testing.T, all []Finding, want []string) {
	t.Helper()
	if got := problems(t, all); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q: %+v", got, want, all)
	}
}

// TestEtcdVersions checks which versions renew leases although they no longer lead.
func TestEtcdVersions(t *testing.T) {
	for version, want := range map[string]bool{
		"3.3.27": true, "3.4.30": true, "3.4.31": false, "3.5.0": true, "3.5.12": true, "3.5.13": false, "3.5.13-rc.0": false,
		"3.6.0": false, "3.7.3": false, "4.0.0": false, "2.3.8": true, "not_decided": false, "": false,
	} {
		if got := renewsWithoutLeading(version); got != want {
			t.Errorf("renewsWithoutLeading(%q) = %v, want %v", version, got, want)
		}
	}
}

// TestZooKeeperFindings breaks one thing at a time in an ensemble, and checks the findings.
func TestZooKeeperFindings(t *testing.T) {
	tests := []struct {
		name   string
		change func(granted *time.Duration, all []zkServer)
		want   []string
	}{
		{"Sound", func(*time.Duration, []zkServer) {}, nil},
		{"NoAnswers", func(_ *time.Duration, all []zkServer) { clear(all) }, []string{"note settings"}},
		{"TwoEnsembles", func(_ *time.Duration, all []zkServer) { all[0].mode = "leader" }, []string{"unmet ensemble"}},
		{"AloneAmongOthers", func(_ *time.Duration, all []zkServer) { all[2].mode = "standalone" }, []string{"unmet ensemble"}},
		{"LongSession", func(granted *time.Duration, _ []zkServer) { *granted = 20 * time.Second }, []string{"note session timeout"}},
		{"ShortSession", func(_ *time.Duration, all []zkServer) { all[1].conf["minSessionTimeout"] = "3999" }, []string{"unmet minSessionTimeout of b:1"}},
		{"PatientLeader", func(_ *time.Duration, all []zkServer) { all[1].conf["syncLimit"] = "5" }, []string{"unmet syncLimit of b:1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			granted := 15 * time.Second
			var all []zkServer
			for i, mode := range []string{"follower", "follower", "leader"} {
				conf := map[string]string{"tickTime": "2000", "minSessionTimeout": "4000", "syncLimit": "4"}
				all = append(all, zkServer{addr: string(rune('a'+i)) + ":1", mode: mode, conf: conf})
			}
			tt.change(&granted, all)
			wantProblems(t, zooKeeperFindings(15*time.Second, granted, all), tt.want)
		})
	}
}

// TestNodeFinding checks that the advice for a node that denies access is not to start it.
func TestNodeFinding(t *testing.T) {
	for want, err := range map[string]error{
		"refuses the login: ": &redislock.ReplyError{Text: "WRONGPASS invalid username-password pair"},
		"unreachable: ":       context.DeadlineExceeded,
	} {
		f := nodeFinding(redlockadmin.NodeStatus{Address: "a:1", Err: err})
		if starts := strings.HasPrefix(f.Advice, "start it"); f.Verdict != Note || f.Value != want+err.Error() || starts != (want == "unreachable: ") {
			t.Errorf("of a node that says %q: %+v, want %q", err, f, want)
		}
	}
}

// TestRedlockFindings breaks one thing at a time in the nodes, and checks the findings.
func TestRedlockFindings(t *testing.T) {
	state := func(s redlockadmin.NodeState) func([]redlockadmin.NodeStatus, []redisadmin.Server) {
		return func(n []redlockadmin.NodeStatus, _ []redisadmin.Server) { n[0].State = s }
	}
	info := func(name, value string) func([]redlockadmin.NodeStatus, []redisadmin.Server) {
		return func(_ []redlockadmin.NodeStatus, s []redisadmin.Server) { s[0].Info[name] = value }
	}
	tests := []struct {
		name   string
		change func(nodes []redlockadmin.NodeStatus, said []redisadmin.Server)
		want   []string
	}{
		{"Sound", func([]redlockadmin.NodeStatus, []redisadmin.Server) {}, nil},
		{"Unreachable", state(redlockadmin.NodeUnreachable), []string{"note node a:1", "note nodes"}},
		{"Waiting", state(redlockadmin.NodeWaiting), []string{"note node a:1", "note nodes"}},
		{"Blank", state(redlockadmin.NodeBlank), []string{"note node a:1", "note nodes"}},
		{"Refused", state(redlockadmin.NodeRefused), []string{"note nodes", "unmet node a:1"}},
		{"Counters", func(n []redlockadmin.NodeStatus, _ []redisadmin.Server) { n[0].Counters = context.DeadlineExceeded }, []string{"unmet node a:1"}},
		{"NoMajority", func(n []redlockadmin.NodeStatus, _ []redisadmin.Server) {
			n[0].State, n[1].State = redlockadmin.NodeWaiting, redlockadmin.NodeWaiting
		}, []string{"note node a:1", "note node b:1", "unmet nodes"}},
		{"Replicas", info("connected_slaves", "1"), []string{"unmet node a:1: replicas"}},
		{"Evicts", info("maxmemory", "100"), []string{"unmet node a:1: maxmemory-policy"}},
		{"Clock", func(_ []redlockadmin.NodeStatus, s []redisadmin.Server) { s[0].Ahead = time.Hour }, []string{"unmet node a:1: clock"}},
		{"SettingsUnknown", func(_ []redlockadmin.NodeStatus, s []redisadmin.Server) { s[0].Settings = nil }, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var nodes []redlockadmin.NodeStatus
			var servers []redisadmin.Server
			for _, addr := range []string{"a:1", "b:1", "c:1"} {
				nodes = append(nodes, redlockadmin.NodeStatus{Address: addr, State: redlockadmin.NodeAdmitted})
				servers = append(servers, redisadmin.Server{
					Info: map[string]string{
						"redis_version": "7.0.15", "redis_mode": "standalone", "uptime_in_seconds": "9",
						"maxmemory": "0", "maxmemory_policy": "allkeys-lru", "connected_slaves": "0",
					},
					Settings: map[string]string{"appendonly": "no", "save": "", "min-replicas-to-write": "0"}, RoundTrip: time.Millisecond,
				})
			}
			tt.change(nodes, servers)
			wantProblems(t, redlockFindings(nodes, map[string]redisadmin.Server{"a:1": servers[0], "b:1": servers[1], "c:1": servers[2]}), tt.want)
		})
	}
}
