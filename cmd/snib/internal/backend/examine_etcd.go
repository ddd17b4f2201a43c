package backend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// memberTimeout is how long one member of a cluster may take to report its state. All members
// are queried at the same time.
const memberTimeout = 5 * time.Second

// An etcdCluster is what the members of a cluster report. A nil field means that we have no
// permission to read it: if users log in, some versions deny a part to users without the role
// root. Status is denied from 3.6.0 and 3.5.28 up to the releases of May 2026, the lists of
// members and of alarms by 3.5.28 only (etcd's pull requests 14663, 21550 and 21666).
type etcdCluster struct {
	members *clientv3.MemberListResponse
	// By member id, without those that don't answer or deny it.
	statuses map[uint64]*clientv3.StatusResponse
	// The addresses that denied us their status.
	denied map[string]bool
	// Our addresses use TLS, so no address without it is queried.
	secure   bool
	alarms   *clientv3.AlarmResponse
	auth     *clientv3.AuthStatusResponse
	noQuorum bool // no majority answers, so nobody knows what is nil
}

func examineEtcd(ctx context.Context, client *clientv3.Client) ([]Finding, error) {
	var c etcdCluster
	var err error
	if c.members, err = fetchMembers(ctx, client, memberTimeout); err != nil && !etcdDenied(err) {
		if c.members, err = fetchMembersLocally(ctx, client); err != nil {
			return nil, err
		}
		c.noQuorum = true
	}
	c.queryMembers(ctx, client.Endpoints(), func(ctx context.Context, address string) (*clientv3.StatusResponse, error) {
		return client.Status(ctx, address)
	})
	if c.noQuorum {
		return c.findings(), nil
	}
	if c.alarms, err = client.AlarmList(ctx); err != nil && !etcdDenied(err) {
		return nil, err
	}
	if c.auth, err = client.AuthStatus(ctx); err != nil && !etcdDenied(err) {
		return nil, err
	}
	return c.findings(), nil
}

func fetchMembers(ctx context.Context, client *clientv3.Client, timeout time.Duration, opts ...clientv3.OpOption) (*clientv3.MemberListResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return client.MemberList(ctx, opts...)
}

// fetchMembersLocally returns the members that one member knows, which takes no majority. Each
// call goes to the next endpoint, so that one that hangs is skipped.
func fetchMembersLocally(ctx context.Context, client *clientv3.Client) (list *clientv3.MemberListResponse, err error) {
	for range client.Endpoints() {
		if list, err = fetchMembers(ctx, client, memberTimeout/3, clientv3.WithSerializable()); err == nil {
			return list, nil
		}
	}
	return nil, err
}

// queryMembers queries the status of all members at the same time, at the addresses that they
// advertise and at ours: behind a proxy some advertised addresses lead nowhere. If our addresses
// use TLS, it skips addresses without TLS: the client would send its credentials there
// unencrypted, so anybody who can make a member advertise such an address would get our token.
func (c *etcdCluster) queryMembers(ctx context.Context, endpoints []string, status func(ctx context.Context, address string) (*clientv3.StatusResponse, error)) {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	c.secure = slices.ContainsFunc(endpoints, isTLSAddress)
	addresses := slices.Clone(endpoints)
	for _, m := range c.list() {
		addresses = append(addresses, c.allowedAddresses(m)...)
	}
	slices.Sort(addresses)
	c.statuses, c.denied = make(map[uint64]*clientv3.StatusResponse), make(map[string]bool)
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, address := range slices.Compact(addresses) {
		all.Go(func() {
			answer, err := status(ctx, address)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				c.statuses[answer.Header.MemberId] = answer
			case etcdDenied(err):
				c.denied[address] = true
			} // otherwise no address of the member answers, or another one does
		})
	}
	all.Wait()
}

// isTLSAddress reports whether etcd's client always uses TLS for an address,
// whatever its configuration.
func isTLSAddress(address string) bool {
	return strings.HasPrefix(address, "https://") || strings.HasPrefix(address, "unixs:")
}

// allowedAddresses returns the addresses of a member that may be queried.
func (c *etcdCluster) allowedAddresses(m *etcdserverpb.Member) []string {
	if !c.secure {
		return m.ClientURLs
	}
	return slices.DeleteFunc(slices.Clone(m.ClientURLs), func(address string) bool { return !isTLSAddress(address) })
}

// wasSkipped reports whether a member was not queried because it advertises no address with TLS.
func (c *etcdCluster) wasSkipped(m *etcdserverpb.Member) bool {
	return c.statuses[m.ID] == nil && len(m.ClientURLs) > 0 && len(c.allowedAddresses(m)) == 0
}

// list returns the members, as far as we may know them.
func (c *etcdCluster) list() []*etcdserverpb.Member {
	if c.members == nil {
		return nil
	}
	return c.members.Members
}

func (c *etcdCluster) findings() []Finding {
	all := []Finding{c.sizeFinding(), c.leaderFinding()}
	for _, m := range c.list() {
		all = append(all, c.memberFindings(m)...)
	}
	return append(all, c.alarmFinding(), c.accessFinding(), Finding{
		Check: "clock", Verdict: Good, Value: "no promise depends on it: leases count by a clock that nobody sets, and tokens are revisions",
	})
}

// unknownFinding returns a finding for what we have no permission to read, or what nobody
// answers.
func (c *etcdCluster) unknownFinding(check, how string) Finding {
	if c.noQuorum {
		return Finding{Check: check, Verdict: Note, Value: "not known: no majority answers", Advice: how + " tells it when there is a majority"}
	}
	return Finding{Check: check, Verdict: Note, Value: "not known: this user may not ask", Advice: how + " tells it to root"}
}

// sizeFinding says how many members may fail.
func (c *etcdCluster) sizeFinding() Finding {
	switch {
	case c.members == nil:
		return c.unknownFinding("members", "etcdctl member list")
	case len(c.denied) > 0: // a member without a status may be well
		return c.unknownFinding("members", "etcdctl endpoint status --cluster")
	}
	voters, up, skipped := 0, 0, 0
	for _, m := range c.list() {
		switch {
		case m.IsLearner:
			continue
		case c.statuses[m.ID] != nil:
			up++
		case c.wasSkipped(m):
			skipped++
		}
		voters++
	}
	if skipped > 0 {
		return Finding{Check: "members", Verdict: Note, Value: fmt.Sprintf("%d of %d answer, and %d were not asked", up, voters, skipped),
			Advice: "have each member advertise an address with TLS: --advertise-client-urls"}
	}
	return quorumFinding("members", "member", "answer", voters, up)
}

// quorumFinding judges a cluster. all is the number of its members, and up is the number of the
// members that do what they should.
func quorumFinding(check, noun, verb string, all, up int) Finding {
	quorum := all/2 + 1
	value := fmt.Sprintf("%d of %d %ss %s, %d are a quorum", up, all, noun, verb, quorum)
	missing := "repair those that don't " + verb
	switch {
	case all == 1:
		return Finding{Check: check, Verdict: Note, Value: "one " + noun, Advice: "nothing is granted while it is down; of three, one may fail"}
	case up < quorum:
		return Finding{Check: check, Verdict: Unmet, Value: value, Advice: "nothing is granted: " + missing}
	case up < all && up == quorum:
		return Finding{Check: check, Verdict: Note, Value: value, Advice: "nothing is granted when one more fails: " + missing}
	case up < all:
		return Finding{Check: check, Verdict: Note, Value: value, Advice: missing}
	case all%2 == 0:
		return Finding{Check: check, Verdict: Note, Value: value, Advice: "an even number tolerates no more failures than one less, and fails more often"}
	}
	return Finding{Check: check, Verdict: Good, Value: value + fmt.Sprintf(", so that %d may fail", all-quorum)}
}

// leaderFinding says whether all members that answer follow the same leader.
func (c *etcdCluster) leaderFinding() Finding {
	if c.members == nil || len(c.statuses) == 0 && len(c.denied) > 0 {
		return c.unknownFinding("leader", "etcdctl endpoint status --cluster")
	}
	leaders := map[uint64]bool{}
	for _, s := range c.statuses {
		leaders[s.Leader] = true
	}
	if len(leaders) != 1 || leaders[0] {
		return Finding{Check: "leader", Verdict: Unmet, Value: "not all members follow the same one", Advice: "an election is under way, or members don't reach one another: look at the network between them"}
	}
	for id := range leaders {
		for _, m := range c.list() {
			if m.ID == id {
				return Finding{Check: "leader", Verdict: Good, Value: memberName(m)}
			}
		}
	}
	return Finding{Check: "leader", Verdict: Unmet, Value: "it is not among the members", Advice: "the members were changed meanwhile; look again"}
}

func memberName(m *etcdserverpb.Member) string {
	if m.Name == "" { // it was never started
		return fmt.Sprintf("%x", m.ID)
	}
	return m.Name
}

// maxEntriesBehind is how many entries a member may be behind before a finding mentions it. At
// 5,000 the member takes no more requests: maxGapBetweenApplyAndCommitIndex in etcd's
// server/etcdserver/v3_server.go.
const maxEntriesBehind = 1000

// memberFindings judges the state of one member.
func (c *etcdCluster) memberFindings(m *etcdserverpb.Member) []Finding {
	check, s := "member "+memberName(m), c.statuses[m.ID]
	if c.wasSkipped(m) {
		return []Finding{{Check: check, Verdict: Note, Value: "not asked: it advertises an address without TLS, " + strings.Join(m.ClientURLs, " and "),
			Advice: "the URL asks for TLS: change --advertise-client-urls of the member"}}
	}
	if s == nil && slices.ContainsFunc(m.ClientURLs, func(address string) bool { return c.denied[address] }) {
		return nil // it is up, and another finding says that its status is denied
	}
	if s == nil {
		return []Finding{{Check: check, Verdict: Note, Value: "does not answer, at " + strings.Join(m.ClientURLs, " or "), Advice: "start it, or check the network between it and this host"}}
	}
	var newest uint64
	for _, other := range c.statuses {
		newest = max(newest, other.RaftIndex)
	}
	behind := newest - min(newest, s.RaftAppliedIndex)
	what := "etcd " + s.Version
	if m.IsLearner {
		what += ", learner"
	}
	all := []Finding{newFinding(check, fmt.Sprintf("%s, %d entries behind", what, behind), behind <= maxEntriesBehind, Note,
		"its disk, its processor or the network to it is slow; requests to it wait")}
	if len(c.list()) > 1 && renewsWithoutLeading(s.Version) {
		all = append(all, Finding{Check: check + ": version", Verdict: Unmet, Value: "etcd " + s.Version,
			Advice: "while it waits for its disk, it may go on to renew leases that a new leader lets expire, so two processes hold a lock: " +
				"upgrade to 3.4.31, 3.5.13, 3.6 or later"})
	}
	return append(all, databaseFinding(check, s))
}

// renewsWithoutLeading reports whether a version of etcd lacks the fix of issue 15247: a leader
// that is stuck in an fdatasync answers keep-alives after the others have elected a new one. Pull
// request 16822 fixed it for 3.6. The changelogs of 3.4.31 and 3.5.13 name its backports, 17465 and
// 17425. It is false for a text that is no version.
func renewsWithoutLeading(version string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 3 {
		return false
	}
	switch {
	case major != 3:
		return major < 3
	case minor == 5:
		return patch < 13
	case minor == 4:
		return patch < 31
	}
	return minor < 4
}

// defaultEtcdQuota is the default quota of servers before 3.6, which don't report theirs.
const defaultEtcdQuota = 2 << 30

func databaseFinding(check string, s *clientv3.StatusResponse) Finding {
	quota, says := s.DbSizeQuota, ""
	if quota <= 0 {
		quota, says = defaultEtcdQuota, ", if it is the default"
	}
	text := fmt.Sprintf("%.1f MiB of %.0f MiB%s", float64(s.DbSize)/(1<<20), float64(quota)/(1<<20), says)
	return newFinding(check+": database", text, s.DbSize < quota/5*4, Note, "at the quota nothing is granted or freed any more: compact and defragment it")
}

func (c *etcdCluster) alarmFinding() Finding {
	if c.alarms == nil {
		return c.unknownFinding("alarms", "etcdctl alarm list")
	}
	if len(c.alarms.Alarms) == 0 {
		return Finding{Check: "alarms", Verdict: Good, Value: "none"}
	}
	var kinds []string
	advice := "look at the members' logs"
	for _, a := range c.alarms.Alarms {
		kinds = append(kinds, a.Alarm.String())
		switch a.Alarm {
		case etcdserverpb.AlarmType_NOSPACE:
			advice = "no lock is granted or freed: compact and defragment, or raise --quota-backend-bytes, and then run etcdctl alarm disarm"
		case etcdserverpb.AlarmType_CORRUPT:
			advice = "members disagree about what is locked: stop, and restore the member that is wrong from the others"
		}
	}
	slices.Sort(kinds)
	return Finding{Check: "alarms", Verdict: Unmet, Value: strings.Join(slices.Compact(kinds), ", "), Advice: advice}
}

func (c *etcdCluster) accessFinding() Finding {
	if c.auth == nil {
		return c.unknownFinding("access", "etcdctl auth status")
	}
	text := map[bool]string{true: "users have to log in", false: "anybody with access to the servers can free each lock"}[c.auth.Enabled]
	return newFinding("access", text, c.auth.Enabled, Note, "require a login with etcdctl auth enable, or restrict network access to the servers")
}
