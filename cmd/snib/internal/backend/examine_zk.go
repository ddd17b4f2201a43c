package backend

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib/zklock"
)

// A zooKeeperStore is a driver that knows its servers by name.
type zooKeeperStore struct {
	*zklock.Driver
	url *serverURL
}

// A zkServer is what one server reports in answer to four-letter commands.
type zkServer struct {
	addr string
	conf map[string]string // the lines "name=value" of conf; empty if it does not answer
	mode string            // what srvr says; "" if it does not answer
}

func (s *zooKeeperStore) examine(ctx context.Context) ([]Finding, error) {
	asked, granted, err := s.SessionTimeout(ctx)
	if err != nil {
		return nil, err
	}
	secure, err := s.url.tlsConfig()
	if err != nil {
		return nil, err
	}
	servers := make([]zkServer, len(s.url.hosts))
	var all sync.WaitGroup
	for i, host := range s.url.hosts {
		all.Go(func() { servers[i] = queryZooKeeper(ctx, host, secure) })
	}
	all.Wait()
	return zooKeeperFindings(asked, granted, servers), nil
}

// queryZooKeeper queries one server, without a session.
func queryZooKeeper(ctx context.Context, addr string, secure *tls.Config) zkServer {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	return zkServer{
		addr: addr,
		conf: parseFields(sendFourLetters(ctx, addr, secure, "conf"), "="),
		mode: parseFields(sendFourLetters(ctx, addr, secure, "srvr"), ": ")["Mode"],
	}
}

// sendFourLetters sends a four-letter command, and returns the answer up to the end of the
// connection: "" if there is none, and something else if the command is not allowed.
func sendFourLetters(ctx context.Context, addr string, secure *tls.Config, command string) string {
	dial := (&net.Dialer{}).DialContext
	if secure != nil {
		dial = (&tls.Dialer{Config: secure}).DialContext
	}
	conn, err := dial(ctx, "tcp", addr)
	if err != nil {
		return ""
	}
	defer conn.Close() //nolint:errcheck // the server has closed it already
	until, _ := ctx.Deadline()
	if conn.SetDeadline(until) != nil {
		return ""
	}
	if _, err := io.WriteString(conn, command); err != nil {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(conn, 1<<16)) // TLS may end without a closing message
	return string(text)
}

// parseFields parses lines with a name and a value.
func parseFields(text, between string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), between); ok {
			all[name] = value
		}
	}
	return all
}

// zooKeeperFindings judges what locks depend on. mntr knows whether the ensemble is well.
func zooKeeperFindings(asked, granted time.Duration, servers []zkServer) []Finding {
	all := append([]Finding{ensembleFinding(servers), sessionFinding(asked, granted)}, tickFindings(granted, servers)...)
	return append(all, Finding{
		Check: "clock", Verdict: Good, Value: "no promise depends on it: sessions count by clocks that nobody sets, and tokens are transaction ids",
	})
}

// ensembleFinding says whether the servers that the URL names are of one ensemble.
func ensembleFinding(servers []zkServer) Finding {
	up, leaders, alone := 0, 0, 0
	for _, s := range servers {
		switch s.mode {
		case "":
			continue
		case "leader":
			leaders++
		case "standalone":
			alone++
		}
		up++
	}
	return newFinding("ensemble", fmt.Sprintf("the URL names %d servers; of %d that answer, %d lead and %d stand alone", len(servers), up, leaders, alone),
		leaders+alone <= 1 && (alone == 0 || len(servers) == 1), Unmet,
		"name the servers of one ensemble only: locks of different ensembles don't exclude each other")
}

func sessionFinding(asked, granted time.Duration) Finding {
	return newFinding("session timeout", fmt.Sprintf("%v, asked for %v", granted, asked), granted <= asked, Note,
		"minSessionTimeout makes it longer: the locks of a process that died stay taken for that long")
}

// tickFindings judges the settings that decide when a session ends, of the
// servers that report them.
func tickFindings(session time.Duration, servers []zkServer) []Finding {
	var all []Finding
	for _, s := range servers {
		tick, minTimeout := s.durationSetting("tickTime", time.Millisecond), s.durationSetting("minSessionTimeout", time.Millisecond)
		if tick == 0 {
			continue
		}
		all = append(all, newFinding("minSessionTimeout of "+s.addr, fmt.Sprintf("%v, with ticks of %v", minTimeout, tick), minTimeout >= 2*tick, Unmet,
			"2 ticks are the minimum: otherwise sessions may end before their clients know"))
		// A standalone server has none.
		if syncLimit := s.durationSetting("syncLimit", tick); syncLimit > 0 {
			maxSyncLimit := session * 7 / 12
			all = append(all, newFinding("syncLimit of "+s.addr, fmt.Sprintf("%v, of a session of %v", syncLimit, session), syncLimit <= maxSyncLimit, Unmet,
				fmt.Sprintf("make it %v at most, or make sessions longer (session-timeout in the URL): a leader that is cut off may keep a lock that another leader grants", maxSyncLimit)))
		}
	}
	if len(all) == 0 {
		return []Finding{{Check: "settings", Verdict: Note, Value: "tickTime, minSessionTimeout and syncLimit are not known: no server answers conf",
			Advice: "allow conf in 4lw.commands.whitelist; syncLimit ticks must be no more than 7/12 of the session timeout"}}
	}
	return all
}

// durationSetting returns a setting that counts units of time, or 0 if it is unknown.
func (s *zkServer) durationSetting(name string, unit time.Duration) time.Duration {
	n, _ := strconv.ParseInt(s.conf[name], 10, 32)
	return time.Duration(n) * unit
}
