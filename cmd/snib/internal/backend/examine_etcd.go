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

// memberAnswers is how long a member of a cluster has to say how it is: the others are asked meanwhile.
const memberAnswers = 5 * time.Second

// An etcdCluster is what the members of a cluster say of themselves.
type etcdCluster struct {
	members []*etcdserverpb.Member
	said    map[uint64]*clientv3.StatusResponse // by the id of the member; without those that don't answer
	alarms  []*etcdserverpb.AlarmMember
	auth    *clientv3.AuthStatusResponse // nil if we may not know
}

func examineEtcd(ctx context.Context, client *clientv3.Client) ([]Finding, error) {
	list, err := client.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	c := etcdCluster{members: list.Members, said: etcdStatus(ctx, client, list.Members)}
	alarms, err := client.AlarmList(ctx)
	if err != nil {
		return nil, err
	}
	c.alarms = alarms.Alarms
	if c.auth, err = client.AuthStatus(ctx); err != nil && !etcdDenied(err) {
		return nil, err
	}
	return c.findings(), nil
}

// etcdStatus asks all members at once, by the addresses that they tell clients and by ours: behind a proxy some lead nowhere.
func etcdStatus(ctx context.Context, client *clientv3.Client, members []*etcdserverpb.Member) map[uint64]*clientv3.StatusResponse {
	ctx, cancel := context.WithTimeout(ctx, memberAnswers)
	defer cancel()
	ask := slices.Clone(client.Endpoints())
	for _, m := range members {
		ask = append(ask, m.ClientURLs...)
	}
	slices.Sort(ask)
	said := make(map[uint64]*clientv3.StatusResponse)
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, endpoint := range slices.Compact(ask) {
		all.Go(func() {
			answer, err := client.Status(ctx, endpoint)
			if err != nil {
				return // none of its addresses answers, or another one does
			}
			mu.Lock()
			defer mu.Unlock()
			said[answer.Header.MemberId] = answer
		})
	}
	all.Wait()
	return said
}

func (c *etcdCluster) findings() []Finding {
	all := []Finding{c.size(), c.leader()}
	for _, m := range c.members {
		all = append(all, c.member(m)...)
	}
	return append(all, c.alarm(), c.access(), Finding{
		Check: "clock", Verdict: Good, Value: "nothing rests on it: leases count by a clock that nobody sets, and tokens are revisions",
	})
}

// size tells how many may fail.
func (c *etcdCluster) size() Finding {
	voters, up := 0, 0
	for _, m := range c.members {
		if m.IsLearner {
			continue
		}
		voters++
		if c.said[m.ID] != nil {
			up++
		}
	}
	return quorumFinding("members", "member", "answer", voters, up)
}

// quorumFinding judges a cluster of so many, of which so many do what they should.
func quorumFinding(check, one, do string, all, up int) Finding {
	quorum := all/2 + 1
	value := fmt.Sprintf("%d of %d %ss %s, %d are a quorum", up, all, one, do, quorum)
	missing := "see to those that don't " + do
	switch {
	case all == 1:
		return Finding{check, Note, "one " + one, "nothing is granted while it is down; three go on when one fails"}
	case up < quorum:
		return Finding{check, Unmet, value, "nothing is granted: " + missing}
	case up < all && up == quorum:
		return Finding{check, Note, value, "nothing is granted when one more fails: " + missing}
	case up < all:
		return Finding{check, Note, value, missing}
	case all%2 == 0:
		return Finding{check, Note, value, "an even number bears no more failures than one less, and fails more often"}
	}
	return Finding{Check: check, Verdict: Good, Value: value + fmt.Sprintf(", so that %d may fail", all-quorum)}
}

// leader tells whether all who answer follow the same one.
func (c *etcdCluster) leader() Finding {
	leaders := map[uint64]bool{}
	for _, s := range c.said {
		leaders[s.Leader] = true
	}
	if len(leaders) != 1 || leaders[0] {
		return Finding{"leader", Unmet, "not all members follow the same one", "an election is under way, or members don't reach one another: look at the network between them"}
	}
	for id := range leaders {
		for _, m := range c.members {
			if m.ID == id {
				return Finding{Check: "leader", Verdict: Good, Value: etcdName(m)}
			}
		}
	}
	return Finding{"leader", Unmet, "it is not among the members", "the members were changed meanwhile; look again"}
}

func etcdName(m *etcdserverpb.Member) string {
	if m.Name == "" { // it has never been started
		return fmt.Sprintf("%x", m.ID)
	}
	return m.Name
}

// lagging is how many entries a member may be behind before it is worth a word. At 5,000 it takes no more requests: maxGapBetweenApplyAndCommitIndex
// in etcd's server/etcdserver/v3_server.go.
const lagging = 1000

// member tells how one is.
func (c *etcdCluster) member(m *etcdserverpb.Member) []Finding {
	check, s := "member "+etcdName(m), c.said[m.ID]
	if s == nil {
		return []Finding{{check, Note, "does not answer, at " + strings.Join(m.ClientURLs, " or "), "start it, or see whether it can be reached from here"}}
	}
	var newest uint64
	for _, other := range c.said {
		newest = max(newest, other.RaftIndex)
	}
	behind := newest - min(newest, s.RaftAppliedIndex)
	what := "etcd " + s.Version
	if m.IsLearner {
		what += ", learner"
	}
	all := []Finding{tell(check, fmt.Sprintf("%s, %d entries behind", what, behind), behind <= lagging, Note,
		"its disk, its processor or the network to it is slow; who asks it waits")}
	return append(all, etcdSize(check, s))
}

// etcdQuota is what a server allows that is not told otherwise, and that does not say: before 3.6.
const etcdQuota = 2 << 30

func etcdSize(check string, s *clientv3.StatusResponse) Finding {
	quota, says := s.DbSizeQuota, ""
	if quota <= 0 {
		quota, says = etcdQuota, ", if it is the default"
	}
	text := fmt.Sprintf("%.1f MiB of %.0f MiB%s", float64(s.DbSize)/(1<<20), float64(quota)/(1<<20), says)
	return tell(check+": database", text, s.DbSize < quota/5*4, Note, "at the quota nothing is granted or freed any more: compact and defragment it")
}

func (c *etcdCluster) alarm() Finding {
	if len(c.alarms) == 0 {
		return Finding{Check: "alarms", Verdict: Good, Value: "none"}
	}
	var kinds []string
	advice := "look at the members' logs"
	for _, a := range c.alarms {
		kinds = append(kinds, a.Alarm.String())
		switch a.Alarm {
		case etcdserverpb.AlarmType_NOSPACE:
			advice = "no lock is granted or freed: compact and defragment, or raise --quota-backend-bytes, and then run etcdctl alarm disarm"
		case etcdserverpb.AlarmType_CORRUPT:
			advice = "members disagree about what is locked: stop, and restore the member that is wrong from the others"
		}
	}
	slices.Sort(kinds)
	return Finding{"alarms", Unmet, strings.Join(slices.Compact(kinds), ", "), advice}
}

func (c *etcdCluster) access() Finding {
	if c.auth == nil {
		return Finding{"access", Note, "not known: this user may not ask", "etcdctl auth status tells it to root"}
	}
	text := map[bool]string{true: "users have to log in", false: "anybody who reaches the servers can free each lock"}[c.auth.Enabled]
	return tell("access", text, c.auth.Enabled, Note, "etcdctl auth enable makes users log in; or let only those reach it who may")
}
