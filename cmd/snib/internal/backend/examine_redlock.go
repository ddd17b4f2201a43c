package backend

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/redisadmin"
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/redlock/redlockadmin"
)

// A redlockStore is a driver of Redlock that can query its nodes one by one.
type redlockStore struct {
	*redlock.Driver
	url *serverURL
}

func (s *redlockStore) examine(ctx context.Context) ([]Finding, error) {
	servers, err := s.url.servers()
	if err != nil {
		return nil, err
	}
	nodes, err := redlock.Admin(servers, s.url.redlock...).Examine(ctx)
	if err != nil {
		return nil, err
	}
	infos := make(map[string]redisadmin.Server)
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, o := range servers {
		all.Go(func() {
			server, err := queryNode(ctx, o)
			if err != nil {
				return // the node's state says what is wrong
			}
			mu.Lock()
			defer mu.Unlock()
			infos[o.InitAddress[0]] = server
		})
	}
	all.Wait()
	return redlockFindings(nodes, infos), nil
}

// queryNode returns what a node reports as a Redis server.
func queryNode(ctx context.Context, o rueidis.ClientOption) (redisadmin.Server, error) {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	d, err := redislock.Open(ctx, o)
	if err != nil {
		return redisadmin.Server{}, err
	}
	defer d.Close() //nolint:errcheck // we have what we came for
	servers, err := d.Admin().Servers(ctx)
	if err != nil {
		return redisadmin.Server{}, err
	}
	if len(servers) != 1 {
		return redisadmin.Server{}, errors.New("it is not a single server")
	}
	return servers[0], nil
}

func redlockFindings(nodes []redlockadmin.NodeStatus, infos map[string]redisadmin.Server) []Finding {
	admitted := 0
	var all []Finding
	for _, n := range nodes {
		if n.State == redlockadmin.NodeAdmitted {
			admitted++
		}
		all = append(all, nodeFinding(n))
		server, ok := infos[n.Address]
		if !ok {
			continue
		}
		for _, f := range nodeSettingFindings(server) {
			f.Check = fmt.Sprintf("node %s: %s", n.Address, f.Check)
			all = append(all, f)
		}
	}
	return append([]Finding{quorumFinding(len(nodes), admitted)}, all...)
}

// nodeFinding judges the state of a node in the cluster.
func nodeFinding(n redlockadmin.NodeStatus) Finding {
	f := Finding{Check: "node " + n.Address, Value: n.State.String()}
	if n.Err != nil {
		f.Value += ": " + n.Err.Error()
	}
	switch n.State {
	case redlockadmin.NodeAdmitted:
		f.Verdict = Good
		if n.Counters != nil {
			f.Verdict, f.Value = Unmet, f.Value+", but "+n.Counters.Error()
			f.Advice = "a faulty client or clock wrote that, and the node does not grant the lock of this counter: if a majority of the other nodes is well, " +
				"run DEL snib.redlock on the node; it takes part again, with their counters, when max-ttl is over"
		}
	case redlockadmin.NodeWaiting:
		f.Verdict, f.Advice = Note, "it restarted, and takes part after max-ttl if a client runs; see snib redlock status"
	case redlockadmin.NodeBlank:
		f.Verdict, f.Advice = Note, "it lost its memory, and takes part after max-ttl if a client runs; snib redlock init is for new nodes only"
	case redlockadmin.NodeRefused:
		f.Verdict, f.Advice = Unmet, "all clients and nodes must have the same list of nodes and the same max-ttl"
	default:
		f.Verdict, f.Advice = Note, "start it, or check the network between it and this host"
		if Denied(n.Err) {
			f.Value, f.Advice = "refuses the login: "+n.Err.Error(), "give it the user, password and rights that the other nodes have"
		}
	}
	return f
}

// nodeSettingFindings judges the settings of a server as a node: its replicas must not replace
// it, and the other nodes know what it forgets.
func nodeSettingFindings(s redisadmin.Server) []Finding {
	var all []Finding
	for _, f := range redisFindings(s) {
		switch f.Check {
		case "persistence":
			if f.Verdict == Note {
				f = Finding{Check: f.Check, Verdict: Good, Value: f.Value + "; a node that restarts is kept out until the leases that it lost are over"}
			}
		case "replicas":
			if s.Info["connected_slaves"] != "0" && s.Info["connected_slaves"] != "" {
				f.Verdict, f.Advice = Unmet, "remove the replicas: a promoted replica takes the place of a node whose locks it may not know, until clients notice it and keep it out"
			}
		case "min-replicas-to-write":
			continue // a node should have no replicas
		case "clock":
			if f.Verdict != Good {
				f.Advice = clockAdvice + "leases end by a node's clock, and clocks order tokens if a majority loses its memory"
			}
		}
		all = append(all, f)
	}
	return all
}

// quorumFinding judges how many of all nodes take part.
func quorumFinding(all, up int) Finding {
	const check = "nodes"
	quorum := all/2 + 1
	value := fmt.Sprintf("%d of %d nodes take part, %d are a quorum", up, all, quorum)
	const missing = "repair those that don't take part"
	switch {
	case up < quorum:
		return Finding{Check: check, Verdict: Unmet, Value: value, Advice: "nothing is granted: " + missing}
	case up < all && up == quorum:
		return Finding{Check: check, Verdict: Note, Value: value, Advice: "nothing is granted when one more fails: " + missing}
	case up < all:
		return Finding{Check: check, Verdict: Note, Value: value, Advice: missing}
	}
	return Finding{Check: check, Verdict: Good, Value: value + fmt.Sprintf(", so that %d may fail", all-quorum)}
}
