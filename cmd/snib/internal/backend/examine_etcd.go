package backend

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// memberTimeout is how long one server of several may take to report its state. All are queried
// at the same time.
const memberTimeout = 5 * time.Second

// examineEtcd examines what locks depend on. etcdctl knows whether the cluster is well.
func examineEtcd(ctx context.Context, client *clientv3.Client) []Finding {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	all := make([]Finding, len(client.Endpoints()))
	var wg sync.WaitGroup
	for i, address := range client.Endpoints() {
		wg.Go(func() {
			answer, err := client.Status(ctx, address)
			all[i] = etcdVersionFinding("member "+address, answer, err)
		})
	}
	wg.Wait()
	return append(all, Finding{
		Check: "clock", Verdict: Good, Value: "no promise depends on it: leases count by a clock that nobody sets, and tokens are revisions",
	})
}

func etcdVersionFinding(check string, answer *clientv3.StatusResponse, err error) Finding {
	switch {
	case etcdDenied(err):
		return Finding{Check: check, Verdict: Note, Value: "not known: this user may not ask", Advice: "etcdctl endpoint status tells its version to root"}
	case err != nil:
		return Finding{Check: check, Verdict: Note, Value: "does not answer", Advice: "start it, or check the network between it and this host"}
	}
	return newFinding(check, "etcd "+answer.Version, !renewsWithoutLeading(answer.Version), Unmet,
		"while a member of a cluster waits for its disk, it may go on to renew leases that a new leader lets expire, so two processes "+
			"hold a lock: upgrade to 3.4.31, 3.5.13, 3.6 or later")
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
