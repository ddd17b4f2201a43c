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

// An etcdCluster is what the members of a cluster say of themselves. What is nil we may not know: where users log in,
// some versions deny one or the other to who has not the role root. Status is denied from 3.6.0 and 3.5.28 on up to the releases of May
// 2026, the list of members and that of alarms by 3.5.28 alone (etcd's pull requests 14663, 21550 and 21666).
type etcdCluster struct {
	members *clientv3.MemberListResponse
	said    map[uint64]*clientv3.StatusResponse // by the id of the member; without those that don't answer, or deny it
	denied  map[string]bool                     // the addresses that answered that we may not know
	secure  bool                                // ours are addresses with TLS, so no other is asked
	alarms  *clientv3.AlarmResponse
	auth    *clientv3.AuthStatusResponse
	mute    bool // no majority answers, so what is nil nobody knows
}

func examineEtcd(ctx context.Context, client *clientv3.Client) ([]Finding, error) {
	var c etcdCluster
	var err error
	if c.members, err = memberList(ctx, client, memberAnswers); err != nil && !etcdDenied(err) {
		if c.members, err = oneMembersList(ctx, client); err != nil {
			return nil, err
		}
		c.mute = true
	}
	c.ask(ctx, client.Endpoints(), func(ctx context.Context, address string) (*clientv3.StatusResponse, error) {
		return client.Status(ctx, address)
	})
	if c.mute {
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

func memberList(ctx context.Context, client *clientv3.Client, patience time.Duration, opts ...clientv3.OpOption) (*clientv3.MemberListResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return client.MemberList(ctx, opts...)
}

// oneMembersList is what any member knows, for which it takes no majority. Each call goes to the next one, so one that hangs is passed over.
func oneMembersList(ctx context.Context, client *clientv3.Client) (list *clientv3.MemberListResponse, err error) {
	for range client.Endpoints() {
		if list, err = memberList(ctx, client, memberAnswers/3, clientv3.WithSerializable()); err == nil {
			return list, nil
		}
	}
	return nil, err
}

// ask asks all members at once, by the addresses that they tell clients and by ours: behind a proxy some lead nowhere. To one that is
// not secure the client would say who we are without TLS, though the URL asks for it: whoever can make a member tell it would get our token.
func (c *etcdCluster) ask(ctx context.Context, ours []string, status func(ctx context.Context, address string) (*clientv3.StatusResponse, error)) {
	ctx, cancel := context.WithTimeout(ctx, memberAnswers)
	defer cancel()
	c.secure = slices.ContainsFunc(ours, withTLSAddress)
	addresses := slices.Clone(ours)
	for _, m := range c.list() {
		addresses = append(addresses, c.askable(m)...)
	}
	slices.Sort(addresses)
	c.said, c.denied = make(map[uint64]*clientv3.StatusResponse), make(map[string]bool)
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, address := range slices.Compact(addresses) {
		all.Go(func() {
			answer, err := status(ctx, address)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				c.said[answer.Header.MemberId] = answer
			case etcdDenied(err):
				c.denied[address] = true
			} // else none of its addresses answers, or another one does
		})
	}
	all.Wait()
}

// withTLSAddress reports whether etcd's client speaks TLS with an address, whatever its configuration.
func withTLSAddress(address string) bool {
	return strings.HasPrefix(address, "https://") || strings.HasPrefix(address, "unixs:")
}

// askable are the addresses of a member that we may ask.
func (c *etcdCluster) askable(m *etcdserverpb.Member) []string {
	if !c.secure {
		return m.ClientURLs
	}
	return slices.DeleteFunc(slices.Clone(m.ClientURLs), func(address string) bool { return !withTLSAddress(address) })
}

// unasked reports whether nobody asked a member, because no address that it tells is secure.
func (c *etcdCluster) unasked(m *etcdserverpb.Member) bool {
	return c.said[m.ID] == nil && len(m.ClientURLs) > 0 && len(c.askable(m)) == 0
}

// list are the members, as far as we may know.
func (c *etcdCluster) list() []*etcdserverpb.Member {
	if c.members == nil {
		return nil
	}
	return c.members.Members
}

func (c *etcdCluster) findings() []Finding {
	all := []Finding{c.size(), c.leader()}
	for _, m := range c.list() {
		all = append(all, c.member(m)...)
	}
	return append(all, c.alarm(), c.access(), Finding{
		Check: "clock", Verdict: Good, Value: "nothing rests on it: leases count by a clock that nobody sets, and tokens are revisions",
	})
}

// unknown is a finding about what we may not ask, or what nobody answers.
func (c *etcdCluster) unknown(check, how string) Finding {
	if c.mute {
		return Finding{check, Note, "not known: no majority answers", how + " tells it when there is one"}
	}
	return Finding{check, Note, "not known: this user may not ask", how + " tells it to root"}
}

// size tells how many may fail.
func (c *etcdCluster) size() Finding {
	switch {
	case c.members == nil:
		return c.unknown("members", "etcdctl member list")
	case len(c.denied) > 0: // who is not in said may be well
		return c.unknown("members", "etcdctl endpoint status --cluster")
	}
	voters, up, unasked := 0, 0, 0
	for _, m := range c.list() {
		switch {
		case m.IsLearner:
			continue
		case c.said[m.ID] != nil:
			up++
		case c.unasked(m):
			unasked++
		}
		voters++
	}
	if unasked > 0 {
		return Finding{"members", Note, fmt.Sprintf("%d of %d answer, and %d were not asked", up, voters, unasked),
			"have each member advertise an address with TLS: --advertise-client-urls"}
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
	if c.members == nil || len(c.said) == 0 && len(c.denied) > 0 {
		return c.unknown("leader", "etcdctl endpoint status --cluster")
	}
	leaders := map[uint64]bool{}
	for _, s := range c.said {
		leaders[s.Leader] = true
	}
	if len(leaders) != 1 || leaders[0] {
		return Finding{"leader", Unmet, "not all members follow the same one", "an election is under way, or members don't reach one another: look at the network between them"}
	}
	for id := range leaders {
		for _, m := range c.list() {
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
	if c.unasked(m) {
		return []Finding{{check, Note, "not asked: it advertises an address without TLS, " + strings.Join(m.ClientURLs, " and "),
			"the URL asks for TLS: change --advertise-client-urls of the member"}}
	}
	if s == nil && slices.ContainsFunc(m.ClientURLs, func(address string) bool { return c.denied[address] }) {
		return nil // it is there, and that we may not know more is said of all
	}
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
	if c.alarms == nil {
		return c.unknown("alarms", "etcdctl alarm list")
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
	return Finding{"alarms", Unmet, strings.Join(slices.Compact(kinds), ", "), advice}
}

func (c *etcdCluster) access() Finding {
	if c.auth == nil {
		return c.unknown("access", "etcdctl auth status")
	}
	text := map[bool]string{true: "users have to log in", false: "anybody who reaches the servers can free each lock"}[c.auth.Enabled]
	return tell("access", text, c.auth.Enabled, Note, "etcdctl auth enable makes users log in; or let only those reach it who may")
}
