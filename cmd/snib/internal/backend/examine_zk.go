package backend

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/zklock"
	"github.com/sniblock/snib/zklock/zkadmin"
)

// A zooKeeperStore is a driver that knows its servers by name.
type zooKeeperStore struct {
	*zklock.Driver
	url *zkURL
}

// A zkServer is what one server reports in answer to four-letter commands.
type zkServer struct {
	addr string
	srvr map[string]string // the lines "Name: value" of srvr
	conf map[string]string // the lines "name=value" of conf; empty if conf is not allowed
	err  error             // why srvr failed
}

func (s *zooKeeperStore) examine(ctx context.Context) ([]Finding, error) {
	e, err := s.Admin().Ensemble(ctx)
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
	return zooKeeperFindings(e, servers), nil
}

// queryZooKeeper queries one server, without a session.
func queryZooKeeper(ctx context.Context, addr string, secure *tls.Config) zkServer {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	s := zkServer{addr: addr}
	text, err := sendFourLetters(ctx, addr, secure, "srvr")
	if err != nil {
		s.err = err
		return s
	}
	s.srvr = parseFields(text, ": ")
	if s.srvr["Mode"] == "" {
		first, _, _ := strings.Cut(text, "\n")
		s.err = fmt.Errorf("it says %q", first)
		return s
	}
	if text, err := sendFourLetters(ctx, addr, secure, "conf"); err == nil {
		s.conf = parseFields(text, "=")
	}
	return s
}

// sendFourLetters sends a four-letter command, and reads the answer up to the end of the
// connection.
func sendFourLetters(ctx context.Context, addr string, secure *tls.Config, command string) (string, error) {
	dial := (&net.Dialer{}).DialContext
	if secure != nil {
		dial = (&tls.Dialer{Config: secure}).DialContext
	}
	conn, err := dial(ctx, "tcp", addr)
	switch {
	case errors.Is(err, io.EOF):
		return "", errHangsUp
	case err != nil:
		return "", err
	}
	defer conn.Close() //nolint:errcheck // the server has closed it already
	until, _ := ctx.Deadline()
	if err := conn.SetDeadline(until); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, command); err != nil {
		return "", err
	}
	text, err := io.ReadAll(bufio.NewReader(io.LimitReader(conn, 1<<16)))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "", errSilent
	case err != nil && len(text) == 0: // here it is fine if TLS ends without a closing message
		return "", err
	case len(text) == 0:
		return "", errHangsUp
	case strings.Contains(string(text), "not in the whitelist"):
		return "", errWhitelist
	}
	return string(text), nil
}

var (
	errWhitelist = errors.New("not in 4lw.commands.whitelist")
	errHangsUp   = errors.New("it hangs up at once: its port is for TLS and the URL is not, or the other way round")
	errSilent    = errors.New("it accepts connections and answers nobody: it hangs, or its port is for TLS and the URL is not")
)

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

func zooKeeperFindings(e zkadmin.Ensemble, servers []zkServer) []Finding {
	all := []Finding{ensembleFinding(e, servers)}
	for _, s := range servers {
		all = append(all, s.finding())
	}
	all = append(all, sessionFinding(e))
	all = append(all, tickFindings(e, servers)...)
	return append(all, zooKeeperAccessFinding(e.ACL), Finding{
		Check: "clock", Verdict: Good, Value: "no promise depends on it: sessions count by clocks that nobody sets, and tokens are transaction ids",
	})
}

// ensembleFinding says how many servers may fail, and whether they form one ensemble.
func ensembleFinding(e zkadmin.Ensemble, servers []zkServer) Finding {
	members, up, leaders, standalone := 0, 0, 0, false
	for _, line := range e.Members {
		if !strings.Contains(line, ":observer") {
			members++
		}
	}
	for _, s := range servers {
		switch mode := s.srvr["Mode"]; mode {
		case "leader", "standalone":
			standalone = standalone || mode == "standalone"
			up++
			leaders++
		case "follower":
			up++
		}
		if errors.Is(s.err, errWhitelist) {
			up++ // it is up
		}
	}
	listed := members > 0
	// There is no list before 3.5, nor for a standalone server, and it may be closed to us.
	// Then count the servers of the URL.
	if !listed {
		members = len(servers)
	}
	const nameAll = "name all of them: then all are checked, and clients can connect although one is down"
	const nameOne = "name the servers of one ensemble only: locks of different ensembles don't exclude each other"
	switch {
	case leaders > 1:
		return Finding{Check: "ensemble", Verdict: Unmet, Value: fmt.Sprintf("%d of the servers lead or stand alone: they are not one ensemble", leaders), Advice: nameOne}
	case standalone && len(servers) > 1:
		return Finding{Check: "ensemble", Verdict: Unmet, Value: "one of the servers stands alone: the others that the URL names are not its ensemble", Advice: nameOne}
	case len(servers) < members:
		return Finding{Check: "ensemble", Verdict: Note, Value: fmt.Sprintf("%d servers, of which the URL names %d, and %d of these answer", members, len(servers), up), Advice: nameAll}
	case !listed && members == 1 && servers[0].srvr["Mode"] != "standalone":
		return Finding{Check: "ensemble", Verdict: Note, Value: "the number of servers is not known: the URL names one, and /zookeeper/config does not say", Advice: nameAll}
	}
	f := quorumFinding("ensemble", "server", "answer", members, min(up, members))
	if !listed && members > 1 {
		f.Value += ", if the URL names all"
	}
	return f
}

// maxOutstanding is how many requests may wait in a server before a finding mentions it. At
// 1,000 the server takes no more: globalOutstandingLimit.
const maxOutstanding = 100

func (s *zkServer) finding() Finding {
	check := "server " + s.addr
	switch {
	case errors.Is(s.err, errWhitelist):
		return Finding{Check: check, Verdict: Note, Value: "version and mode are not known: srvr is " + s.err.Error(), Advice: "allow srvr and conf on this server"}
	case s.err != nil:
		return Finding{Check: check, Verdict: Note, Value: "does not serve: " + s.err.Error(), Advice: "start it, or check whether it reaches the others"}
	}
	version, _, _ := strings.Cut(s.srvr["Zookeeper version"], "-")
	outstanding, _ := strconv.Atoi(s.srvr["Outstanding"])
	return newFinding(check, fmt.Sprintf("ZooKeeper %s, %s, %d requests wait", version, s.srvr["Mode"], outstanding), outstanding <= maxOutstanding, Note,
		"its disk is slow, or Java collects garbage: sessions end if that lasts")
}

func sessionFinding(e zkadmin.Ensemble) Finding {
	return newFinding("session timeout", fmt.Sprintf("%v, asked for %v", e.Granted, e.Asked), e.Granted <= e.Asked, Note,
		"minSessionTimeout makes it longer: the locks of a process that died stay taken for that long")
}

// tickFindings judges the settings that decide when a session ends, of the
// servers that report them.
func tickFindings(e zkadmin.Ensemble, servers []zkServer) []Finding {
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
			maxSyncLimit := e.Granted * 7 / 12
			all = append(all, newFinding("syncLimit of "+s.addr, fmt.Sprintf("%v, of a session of %v", syncLimit, e.Granted), syncLimit <= maxSyncLimit, Unmet,
				fmt.Sprintf("make it %v at most, or make sessions longer (session-timeout in the URL): a leader that is cut off may keep a lock that another leader grants", maxSyncLimit)))
		}
	}
	if len(all) == 0 {
		return []Finding{{Check: "settings", Verdict: Note, Value: "tickTime, minSessionTimeout and syncLimit are not known: conf is " + errWhitelist.Error(),
			Advice: "allow conf there; syncLimit ticks must be no more than 7/12 of the session timeout"}}
	}
	return all
}

// durationSetting returns a setting that counts units of time, or 0 if it is unknown.
func (s *zkServer) durationSetting(name string, unit time.Duration) time.Duration {
	n, _ := strconv.ParseInt(s.conf[name], 10, 32)
	return time.Duration(n) * unit
}

func zooKeeperAccessFinding(acl []zk.ACL) Finding {
	if acl == nil {
		return Finding{Check: "access", Verdict: Note, Value: "not known: this user may not ask", Advice: "getAcl shows it to a user who may ask"}
	}
	var open []string
	for _, a := range acl {
		if a.Scheme == "world" && a.Perms&(zk.PermDelete|zk.PermWrite|zk.PermCreate|zk.PermAdmin) != 0 {
			open = append(open, a.ID)
		}
	}
	slices.Sort(open)
	text := "the users who have taken locks here, by password"
	if len(open) > 0 {
		text = "anybody with access to the servers can free each lock"
	}
	return newFinding("access", text, len(open) == 0, Note, "give the URL a user and a password, and remove the root of the locks once, or restrict network access to the servers")
}
