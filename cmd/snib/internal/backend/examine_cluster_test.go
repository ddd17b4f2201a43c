package backend

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/redisadmin"
	"github.com/sniblock/snib/redlock/redlockadmin"
	"github.com/sniblock/snib/zklock/zkadmin"
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

// TestEtcdFindings breaks one thing at a time in a cluster, and checks the findings.
func TestEtcdFindings(t *testing.T) {
	alarm := func(kind etcdserverpb.AlarmType) func(*etcdCluster) {
		return func(c *etcdCluster) { c.alarms.Alarms = []*etcdserverpb.AlarmMember{{MemberID: 1, Alarm: kind}} }
	}
	deny := func(addresses ...string) func(*etcdCluster) {
		return func(c *etcdCluster) {
			for _, address := range addresses {
				c.denied[address] = true
				delete(c.statuses, uint64(address[len("http://")]-'a'+1))
			}
		}
	}
	tests := []struct {
		name   string
		change func(c *etcdCluster)
		want   []string
	}{
		{"Sound", func(*etcdCluster) {}, nil},
		{"Down", func(c *etcdCluster) { delete(c.statuses, 3) }, []string{"note member c", "note members"}},
		{"Two", func(c *etcdCluster) { c.members.Members = c.members.Members[:2]; delete(c.statuses, 3) }, []string{"note members"}},
		// Two members vote.
		{"Learner", func(c *etcdCluster) { c.members.Members[2].IsLearner = true }, []string{"note members"}},
		{"TwoLeaders", func(c *etcdCluster) { c.statuses[2].Leader = 2 }, []string{"unmet leader"}},
		{"NoLeader", func(c *etcdCluster) { c.statuses[2].Leader = 0 }, []string{"unmet leader"}},
		{"StrangeLeader", func(c *etcdCluster) {
			c.statuses = map[uint64]*clientv3.StatusResponse{1: c.statuses[1], 2: c.statuses[1], 3: c.statuses[1]}
			c.statuses[1].Leader = 9
		}, []string{"unmet leader"}},
		{"Unapplied", func(c *etcdCluster) { c.statuses[2].RaftAppliedIndex = 7000 }, []string{"note member b"}},
		{"Lagging", func(c *etcdCluster) { c.statuses[2].RaftIndex, c.statuses[2].RaftAppliedIndex = 7000, 7000 }, []string{"note member b"}},
		{"NearlyFull", func(c *etcdCluster) { c.statuses[2].DbSize = 900 }, []string{"note member b: database"}},
		{"DefaultQuota", func(c *etcdCluster) { c.statuses[2].DbSizeQuota = 0 }, nil},
		{"NearlyFullByDefault", func(c *etcdCluster) { c.statuses[2].DbSizeQuota, c.statuses[2].DbSize = 0, 2<<30-1 }, []string{"note member b: database"}},
		{"Old", func(c *etcdCluster) { c.statuses[2].Version = "3.5.12" }, []string{"unmet member b: version"}},
		{"OldAndAlone", func(c *etcdCluster) {
			c.members.Members = c.members.Members[:1]
			c.statuses = map[uint64]*clientv3.StatusResponse{1: c.statuses[1]}
			c.statuses[1].Version = "3.5.12"
		}, []string{"note members"}},
		{"NoSpace", alarm(etcdserverpb.AlarmType_NOSPACE), []string{"unmet alarms"}},
		{"Corrupt", alarm(etcdserverpb.AlarmType_CORRUPT), []string{"unmet alarms"}},
		{"Open", func(c *etcdCluster) { c.auth.Enabled = false }, []string{"note access"}},
		{"AccessUnknown", func(c *etcdCluster) { c.auth = nil }, []string{"note access"}},
		{"MembersUnknown", func(c *etcdCluster) { c.members = nil }, []string{"note leader", "note members"}},
		{"AlarmsUnknown", func(c *etcdCluster) { c.alarms = nil }, []string{"note alarms"}},
		{"StatusUnknown", deny("http://a", "http://b", "http://c"), []string{"note leader", "note members"}},
		// During an upgrade.
		{"StatusUnknownOfOne", deny("http://b"), []string{"note members"}},
		{"StatusUnknownAndDown", func(c *etcdCluster) { deny("http://a", "http://b")(c); delete(c.statuses, 3) },
			[]string{"note leader", "note member c", "note members"}},
		{"NotAsked", func(c *etcdCluster) {
			c.secure = true
			c.members.Members[1].ClientURLs = []string{"https://b"}
			delete(c.statuses, 2)
			delete(c.statuses, 3)
		}, []string{"note member b", "note member c", "note members"}},
		{"AskedByOurAddress", func(c *etcdCluster) { c.secure = true }, nil},
		{"AllUnknown", func(c *etcdCluster) { *c = etcdCluster{denied: map[string]bool{"http://a": true}} },
			[]string{"note access", "note alarms", "note leader", "note members"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := etcdCluster{
				members: &clientv3.MemberListResponse{}, statuses: map[uint64]*clientv3.StatusResponse{}, denied: map[string]bool{},
				alarms: &clientv3.AlarmResponse{}, auth: &clientv3.AuthStatusResponse{Enabled: true},
			}
			for id, name := range []string{"a", "b", "c"} {
				c.members.Members = append(c.members.Members, &etcdserverpb.Member{ID: uint64(id + 1), Name: name, ClientURLs: []string{"http://" + name}})
				c.statuses[uint64(id+1)] = &clientv3.StatusResponse{Version: "3.6.0", Leader: 1, RaftIndex: 9000, RaftAppliedIndex: 8999, DbSize: 100, DbSizeQuota: 1000}
			}
			tt.change(&c)
			wantProblems(t, c.findings(), tt.want)
		})
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

// TestEtcdAsk checks that a member that denies its status is not mistaken for one that is down.
func TestEtcdAsk(t *testing.T) {
	c := etcdCluster{members: &clientv3.MemberListResponse{Members: []*etcdserverpb.Member{
		{ID: 1, ClientURLs: []string{"http://a"}}, {ID: 2, ClientURLs: []string{"http://b"}}, {ID: 3, ClientURLs: []string{"http://c"}},
	}}}
	c.queryMembers(t.Context(), []string{"http://b"}, func(_ context.Context, address string) (*clientv3.StatusResponse, error) {
		switch address {
		case "http://a":
			return &clientv3.StatusResponse{Header: &etcdserverpb.ResponseHeader{MemberId: 1}}, nil
		case "http://b":
			return nil, rpctypes.ErrPermissionDenied
		}
		return nil, context.DeadlineExceeded
	})
	if len(c.statuses) != 1 || c.statuses[1] == nil || len(c.denied) != 1 || !c.denied["http://b"] {
		t.Errorf("1 answers, 2 denies it and 3 does not: got %v, denied by %v", c.statuses, c.denied)
	}
}

// TestEtcdAsksWithTLS checks that a cluster that is queried over TLS gets nothing without TLS,
// whatever its members advertise.
func TestEtcdAsksWithTLS(t *testing.T) {
	for ours, want := range map[string][]string{
		"https://a": {"https://a", "https://b", "unixs:c"},
		"http://a":  {"b:2379", "http://a", "http://b", "https://b", "unix:c", "unixs:c"},
	} {
		c := etcdCluster{members: &clientv3.MemberListResponse{Members: []*etcdserverpb.Member{
			{ID: 2, ClientURLs: []string{"http://b", "https://b", "b:2379"}}, {ID: 3, ClientURLs: []string{"unix:c", "unixs:c"}},
		}}}
		var mu sync.Mutex
		var got []string
		c.queryMembers(t.Context(), []string{ours}, func(_ context.Context, address string) (*clientv3.StatusResponse, error) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, address)
			return nil, context.DeadlineExceeded
		})
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("by %s the addresses %q were asked, want %q", ours, got, want)
		}
	}
}

// TestEtcdDenies queries a server that requires a login, without one. The server denies the
// lists of members and of alarms, and its status. (3.5.28 denies the same to users without the
// role root.) That is not an error, and the findings contain what may be known.
func TestEtcdDenies(t *testing.T) {
	s := etcdtest.Start(t)
	s.RequireLogin()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + s.Addr()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	all, err := examineEtcd(t.Context(), client)
	if err != nil {
		t.Fatalf("examineEtcd = %v, want findings", err)
	}
	wantProblems(t, all, []string{"note alarms", "note leader", "note members"})
	for _, f := range all {
		if f.Verdict == Note && f.Value != "not known: this user may not ask" {
			t.Errorf("%s: %q, want that it is not known", f.Check, f.Value)
		}
	}
}

// TestZooKeeperFindings breaks one thing at a time in an ensemble, and checks the findings.
func TestZooKeeperFindings(t *testing.T) {
	tests := []struct {
		name   string
		change func(e *zkadmin.Ensemble, all []zkServer)
		want   []string
	}{
		{"Sound", func(*zkadmin.Ensemble, []zkServer) {}, nil},
		{"Busy", func(_ *zkadmin.Ensemble, all []zkServer) { all[0].srvr["Outstanding"] = "101" }, []string{"note server a:1"}},
		{"Down", func(_ *zkadmin.Ensemble, all []zkServer) { all[0] = zkServer{addr: "a:1", err: errors.New("refused")} },
			[]string{"note ensemble", "note server a:1"}},
		{"SrvrNotAllowed", func(_ *zkadmin.Ensemble, all []zkServer) { all[0] = zkServer{addr: "a:1", err: errWhitelist} },
			[]string{"note server a:1"}},
		{"ConfNotAllowed", func(_ *zkadmin.Ensemble, all []zkServer) { all[0].conf, all[1].conf, all[2].conf = nil, nil, nil }, []string{"note settings"}},
		{"TwoEnsembles", func(_ *zkadmin.Ensemble, all []zkServer) { all[0].srvr["Mode"] = "leader" }, []string{"unmet ensemble"}},
		{"NotAllNamed", func(e *zkadmin.Ensemble, _ []zkServer) {
			e.Members = append(e.Members, "server.4=d:2:3:participant", "server.5=e:2:3:participant")
		}, []string{"note ensemble"}},
		{"Even", func(e *zkadmin.Ensemble, _ []zkServer) { e.Members = append(e.Members, "server.4=d:2:3:participant") }, []string{"note ensemble"}},
		{"MembersUnknown", func(e *zkadmin.Ensemble, _ []zkServer) { e.Members = nil }, nil},
		{"Observer", func(e *zkadmin.Ensemble, _ []zkServer) { e.Members = append(e.Members, "server.4=d:2:3:observer") }, nil},
		{"LongSession", func(e *zkadmin.Ensemble, _ []zkServer) { e.Granted = 20 * time.Second }, []string{"note session timeout"}},
		{"ShortSession", func(_ *zkadmin.Ensemble, all []zkServer) { all[1].conf["minSessionTimeout"] = "3999" }, []string{"unmet minSessionTimeout of b:1"}},
		{"PatientLeader", func(_ *zkadmin.Ensemble, all []zkServer) { all[1].conf["syncLimit"] = "5" }, []string{"unmet syncLimit of b:1"}},
		{"Open", func(e *zkadmin.Ensemble, _ []zkServer) { e.ACL = zk.WorldACL(zk.PermDelete) }, []string{"note access"}},
		{"Readable", func(e *zkadmin.Ensemble, _ []zkServer) { e.ACL = append(e.ACL, zk.WorldACL(zk.PermRead)...) }, nil},
		{"AccessUnknown", func(e *zkadmin.Ensemble, _ []zkServer) { e.ACL = nil }, []string{"note access"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := zkadmin.Ensemble{
				Asked: 15 * time.Second, Granted: 15 * time.Second, ACL: zk.DigestACL(zk.PermAll, "alice", "horse"),
				Members: []string{"server.1=a:2:3:participant", "server.2=b:2:3:participant", "server.3=c:2:3:participant"},
			}
			var all []zkServer
			for i, mode := range []string{"follower", "follower", "leader"} {
				all = append(all, zkServer{
					addr: string(rune('a'+i)) + ":1",
					srvr: map[string]string{"Mode": mode, "Outstanding": "100", "Zookeeper version": "3.8.0-abc, built on 2022"},
					conf: map[string]string{"tickTime": "2000", "minSessionTimeout": "4000", "syncLimit": "4"},
				})
			}
			tt.change(&e, all)
			wantProblems(t, zooKeeperFindings(e, all), tt.want)
		})
	}
}

// TestZooKeeperSizeUnlisted checks that a finding claims no more than the URL and srvr tell if
// the list of servers is missing or closed to us.
func TestZooKeeperSizeUnlisted(t *testing.T) {
	tests := []struct {
		name    string
		servers []zkServer
		verdict Verdict
		want    string
	}{
		{"All", []zkServer{serverInMode("leader"), serverInMode("follower"), serverInMode("follower")}, Good, "3 of 3 servers answer, 2 are a quorum, so that 1 may fail, if the URL names all"},
		{"OneOfThem", []zkServer{serverInMode("follower")}, Note, "the number of servers is not known: the URL names one, and /zookeeper/config does not say"},
		{"OneThatMayNotSay", []zkServer{{err: errWhitelist}}, Note, "the number of servers is not known: the URL names one, and /zookeeper/config does not say"},
		{"Alone", []zkServer{serverInMode("standalone")}, Note, "one server"},
		{"AloneAmongOthers", []zkServer{serverInMode("standalone"), {err: errSilent}}, Unmet, "one of the servers stands alone: the others that the URL names are not its ensemble"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if f := ensembleFinding(zkadmin.Ensemble{}, tt.servers); f.Verdict != tt.verdict || f.Value != tt.want {
				t.Errorf("%s: %q, want %s: %q", f.Verdict, f.Value, tt.verdict, tt.want)
			}
		})
	}
}

func serverInMode(mode string) zkServer { return zkServer{srvr: map[string]string{"Mode": mode}} }

// TestNodeFinding checks that the advice for a node that denies access is not to start it.
func TestNodeFinding(t *testing.T) {
	tests := []struct {
		err           error
		value, advice string
	}{
		{&redislock.ReplyError{Text: "WRONGPASS invalid username-password pair"}, "refuses the login: ", "its user or password differs"},
		{&redislock.ReplyError{Text: "NOAUTH Authentication required."}, "refuses the login: ", "asks for a password"},
		{&redislock.ReplyError{Text: "NOPERM this user has no permissions"}, "refuses the login: ", "rights"},
		{context.DeadlineExceeded, "unreachable: ", "start it"},
	}
	for _, tt := range tests {
		f := nodeFinding(redlockadmin.NodeStatus{Address: "a:1", Err: tt.err})
		if f.Verdict != Note || f.Value != tt.value+tt.err.Error() || !strings.Contains(f.Advice, tt.advice) {
			t.Errorf("of a node that says %q: %+v, want %q and %q", tt.err, f, tt.value, tt.advice)
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
		{"Twice", info("run_id", "1"), []string{"unmet servers"}},
		{"Replicas", info("connected_slaves", "1"), []string{"unmet node a:1: replicas"}},
		{"IsReplica", info("role", "slave"), []string{"unmet node a:1: role"}},
		{"Evicts", info("maxmemory", "100"), []string{"unmet node a:1: maxmemory-policy"}},
		{"Clock", func(_ []redlockadmin.NodeStatus, s []redisadmin.Server) { s[0].Ahead = time.Hour }, []string{"unmet node a:1: clock"}},
		{"SettingsUnknown", func(_ []redlockadmin.NodeStatus, s []redisadmin.Server) { s[0].Settings = nil }, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var nodes []redlockadmin.NodeStatus
			var servers []redisadmin.Server
			for i, addr := range []string{"a:1", "b:1", "c:1"} {
				nodes = append(nodes, redlockadmin.NodeStatus{Address: addr, State: redlockadmin.NodeAdmitted})
				servers = append(servers, redisadmin.Server{
					Info: map[string]string{
						"redis_version": "7.0.15", "redis_mode": "standalone", "uptime_in_seconds": "9", "run_id": string(rune('0' + i)), "role": "master",
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
