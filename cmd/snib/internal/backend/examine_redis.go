package backend

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/redisadmin"
)

func examineRedis(ctx context.Context, d *redislock.Driver) ([]Finding, error) {
	servers, err := d.Admin().Servers(ctx)
	if err != nil {
		return nil, err
	}
	var all []Finding
	ids := make(map[string]int)
	for i, s := range servers {
		found := redisFindings(s)
		if len(servers) > 1 {
			for j := range found {
				found[j].Check = fmt.Sprintf("server %d: %s", i+1, found[j].Check)
			}
		}
		all = append(all, found...)
		ids[s.Info["run_id"]]++
	}
	switch grace, err := d.Admin().Grace(ctx); {
	case err == nil:
		all = append(all, graceFinding(grace))
	case errors.As(err, new(*redislock.ReplyError)):
		all = append(all, Finding{Check: "grace", Verdict: Note, Value: "not known: " + err.Error(), Advice: "run this as a user who may read the keys that begin with snib."})
	default: // such as a server that has answered before, and now pauses all scripts
		all = append(all, Finding{Check: "grace", Verdict: Note, Value: "not known: " + err.Error(), Advice: "run this again when the server runs scripts"})
	}
	for id, n := range ids {
		if n > 1 {
			all = append(all, Finding{Check: "servers", Verdict: Unmet, Value: fmt.Sprintf("%d addresses lead to one server, run id %s", n, id), Advice: "name each server once"})
		}
	}
	return all, nil
}

func redisFindings(s redisadmin.Server) []Finding {
	info := s.Info
	version := "Redis " + info["redis_version"]
	if v := info["valkey_version"]; v != "" {
		version = "Valkey " + v
	}
	all := []Finding{
		{Check: "version", Verdict: Good, Value: fmt.Sprintf("%s, %s, up for %s s", version, info["redis_mode"], info["uptime_in_seconds"])},
		evictionFinding(info),
		persistenceFinding(s),
	}
	all = append(all, replicaFindings(s)...)
	all = append(all, clockFinding(s.Ahead, s.RoundTrip, "leases end by the server's clock, and clocks order tokens across a failover"))
	if s.Clock > 0 {
		all = append(all, tokenFinding(s.LastToken, s.Clock, "set field t of snib.m to the time in microseconds"))
	}
	return all
}

// tokenFinding compares the last token with the server's clock. The token should not
// be far ahead of the clock. The remedy says how to set it back.
func tokenFinding(last, clock uint64, remedy string) Finding {
	ahead := time.Duration(0)
	if last > clock {
		ahead = time.Duration(min(last-clock, uint64(100*365*24*time.Hour/time.Microsecond))) * time.Microsecond
	}
	text := "the last one is no later than the server's clock"
	if ahead > 0 {
		text = fmt.Sprintf("the last one, %d, is %v ahead of the server's clock", last, ahead.Round(time.Second))
	}
	return newFinding("last-token", text, ahead < 24*time.Hour, Unmet,
		"somebody has written it, or the clock was set back; if no resource has seen such a token, "+remedy)
}

// graceFinding says for how long a restart would withhold locks.
func graceFinding(grace time.Duration) Finding {
	if grace == 0 {
		return Finding{Check: "grace", Verdict: Note, Value: "off: a restart or failover may grant a lock twice", Advice: "turn failover-grace on"}
	}
	return newFinding("grace", fmt.Sprintf("a restart now would withhold all locks for %v", grace), grace <= 10*time.Minute, Note,
		"shorter TTLs, or a smaller max-ttl, make it shorter; snib redis forget ends it when nobody holds a lock")
}

func evictionFinding(info map[string]string) Finding {
	policy, limit := info["maxmemory_policy"], info["maxmemory"]
	text := policy
	if limit == "0" || limit == "" {
		text = "without maxmemory nothing is evicted"
	}
	return newFinding("maxmemory-policy", text, limit == "0" || limit == "" || policy == "noeviction", Unmet,
		"set it to noeviction: otherwise Redis may evict locks and the last tokens")
}

func persistenceFinding(s redisadmin.Server) Finding {
	aof, known := s.Settings["appendonly"]
	switch {
	case !known:
		return Finding{Check: "persistence", Verdict: Note, Value: "not known: CONFIG GET is not allowed", Advice: "allow it to the user of the URL, or ask the server's operator"}
	case aof == "yes" && s.Settings["appendfsync"] == "always":
		return Finding{Check: "persistence", Verdict: Good, Value: "append-only file, fsync always"}
	case aof == "yes":
		return Finding{Check: "persistence", Verdict: Note, Value: "append-only file, fsync " + s.Settings["appendfsync"],
			Advice: "a power cut loses the last moments; failover-grace waits until the lost leases are over"}
	}
	text := "none"
	if s.Settings["save"] != "" {
		text = "snapshots only"
	}
	return Finding{Check: "persistence", Verdict: Note, Value: text, Advice: "a restart loses all leases; failover-grace waits until they are over"}
}

func replicaFindings(s redisadmin.Server) []Finding {
	n, _ := strconv.Atoi(s.Info["connected_slaves"])
	if n == 0 {
		return []Finding{{Check: "replicas", Verdict: Good, Value: "none: there is nothing to fail over to"}}
	}
	master, _ := strconv.ParseInt(s.Info["master_repl_offset"], 10, 64)
	var behind int64
	for i := range n {
		for part := range strings.SplitSeq(s.Info[fmt.Sprintf("slave%d", i)], ",") {
			if text, ok := strings.CutPrefix(part, "offset="); ok {
				at, _ := strconv.ParseInt(text, 10, 64)
				behind = max(behind, master-at)
			}
		}
	}
	const maxBehind = 1 << 20
	all := []Finding{newFinding("replicas", fmt.Sprintf("%d, the last %d bytes behind", n, behind), behind < maxBehind, Note,
		"leases that a replica has not received are lost when it is promoted")}
	minReplicas, known := s.Settings["min-replicas-to-write"]
	switch {
	case !known:
		all = append(all, Finding{Check: "min-replicas-to-write", Verdict: Note, Value: "not known: CONFIG GET is not allowed", Advice: "1 or more is right"})
	default:
		all = append(all, newFinding("min-replicas-to-write", minReplicas, minReplicas != "0", Unmet,
			"set it to 1: a master that is cut off from its replicas goes on granting locks that they never receive"))
	}
	return all
}
