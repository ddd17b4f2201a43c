package backend

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/redisadmin"
)

func examineRedis(ctx context.Context, d *redislock.Driver, graceOff bool) ([]Finding, error) {
	servers, err := d.Admin().Servers(ctx)
	if err != nil {
		return nil, err
	}
	var all []Finding
	durable := d.Info().Fencing == driver.FencingDurable
	for i, s := range servers {
		found := redisFindings(s)
		if durable {
			found = append(found, durableFinding(s))
		}
		if len(servers) > 1 {
			for j := range found {
				found[j].Check = fmt.Sprintf("server %d: %s", i+1, found[j].Check)
			}
		}
		all = append(all, found...)
	}
	if graceOff {
		all = append(all, Finding{Check: "grace", Verdict: Note, Value: "off: a restart or failover may grant a lock twice", Advice: "turn failover-grace on"})
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

// durableFinding says whether the server saves each grant and renewal, as durable=aof promises.
func durableFinding(s redisadmin.Server) Finding {
	for _, want := range [...][2]string{{"appendonly", "yes"}, {"appendfsync", "always"}, {"no-appendfsync-on-rewrite", "no"}} {
		if got := s.Settings[want[0]]; got != want[1] {
			return Finding{Check: "durable", Verdict: Unmet, Value: want[0] + " is " + got, Advice: "set it to " + want[1] + " in the server's configuration file"}
		}
	}
	switch {
	case s.Info["aof_last_write_status"] != "ok":
		return Finding{Check: "durable", Verdict: Unmet, Value: "the server can't write its append-only file", Advice: "look into its log and at its disk"}
	case s.Info["connected_slaves"] != "0":
		return Finding{Check: "durable", Verdict: Unmet, Value: "the server has replicas", Advice: "one that takes its place may lack the last leases; leave durable=aof out, or the replicas"}
	}
	return Finding{Check: "durable", Verdict: Good, Value: "grants and renewals count when they are on the disk"}
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
	all := []Finding{{Check: "replicas", Verdict: Good, Value: strconv.Itoa(n)}}
	minReplicas, known := s.Settings["min-replicas-to-write"]
	if !known {
		return append(all, Finding{Check: "min-replicas-to-write", Verdict: Note, Value: "not known: CONFIG GET is not allowed", Advice: "1 or more is right"})
	}
	return append(all, newFinding("min-replicas-to-write", minReplicas, minReplicas != "0", Unmet,
		"set it to 1: a master that is cut off from its replicas goes on granting locks that they never receive"))
}
