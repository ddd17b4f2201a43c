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
)

// A zooKeeperStore is a driver that knows its servers by name.
type zooKeeperStore struct {
	*zklock.Driver
	url *zkURL
}

// A zkServer is what one server says of itself, in answer to its commands of four letters.
type zkServer struct {
	addr string
	srvr map[string]string // the lines "Name: value" of srvr
	conf map[string]string // the lines "name=value" of conf; empty if it may not be asked
	err  error             // why srvr was not answered
}

func (s *zooKeeperStore) examine(ctx context.Context) ([]Finding, error) {
	e, err := s.Ensemble(ctx)
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
		all.Go(func() { servers[i] = askZooKeeper(ctx, host, secure) })
	}
	all.Wait()
	return zooKeeperFindings(e, servers), nil
}

// askZooKeeper asks one server, without a session.
func askZooKeeper(ctx context.Context, addr string, secure *tls.Config) zkServer {
	ctx, cancel := context.WithTimeout(ctx, memberAnswers)
	defer cancel()
	s := zkServer{addr: addr}
	text, err := fourLetters(ctx, addr, secure, "srvr")
	if err != nil {
		s.err = err
		return s
	}
	s.srvr = fields(text, ": ")
	if s.srvr["Mode"] == "" {
		first, _, _ := strings.Cut(text, "\n")
		s.err = fmt.Errorf("it says %q", first)
		return s
	}
	if text, err := fourLetters(ctx, addr, secure, "conf"); err == nil {
		s.conf = fields(text, "=")
	}
	return s
}

// fourLetters sends a command and reads the answer, up to the end of the connection.
func fourLetters(ctx context.Context, addr string, secure *tls.Config, command string) (string, error) {
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
	case err != nil && len(text) == 0: // TLS that ends without a word is fine here
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

// fields reads lines of a name and a value.
func fields(text, between string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), between); ok {
			all[name] = value
		}
	}
	return all
}

func zooKeeperFindings(e zklock.Ensemble, servers []zkServer) []Finding {
	all := []Finding{zooKeeperSize(e, servers)}
	for _, s := range servers {
		all = append(all, s.finding())
	}
	all = append(all, zooKeeperSession(e))
	all = append(all, zooKeeperTicks(e, servers)...)
	return append(all, zooKeeperAccess(e.ACL), Finding{
		Check: "clock", Verdict: Good, Value: "nothing rests on it: sessions count by clocks that nobody sets, and tokens are transaction ids",
	})
}

// zooKeeperSize tells how many may fail, and whether the servers are of one ensemble.
func zooKeeperSize(e zklock.Ensemble, servers []zkServer) Finding {
	members, up, heads, alone := 0, 0, 0, false
	for _, line := range e.Members {
		if !strings.Contains(line, ":observer") {
			members++
		}
	}
	for _, s := range servers {
		switch mode := s.srvr["Mode"]; mode {
		case "leader", "standalone":
			alone = alone || mode == "standalone"
			up++
			heads++
		case "follower":
			up++
		}
		if errors.Is(s.err, errWhitelist) {
			up++ // it is there
		}
	}
	listed := members > 0
	if !listed { // there is no list before 3.5 nor where a server stands alone, and it may be closed to us: the URL has to do
		members = len(servers)
	}
	const nameAll = "name all of them: they are looked at then, and one that is down keeps nobody out"
	const nameOne = "name the servers of one ensemble only: locks of different ones know nothing of each other"
	switch {
	case heads > 1:
		return Finding{"ensemble", Unmet, fmt.Sprintf("%d of the servers lead or stand alone: they are not one ensemble", heads), nameOne}
	case alone && len(servers) > 1:
		return Finding{"ensemble", Unmet, "one of the servers stands alone: the others that the URL names are not its ensemble", nameOne}
	case len(servers) < members:
		return Finding{"ensemble", Note, fmt.Sprintf("%d servers, of which the URL names %d, and %d of these answer", members, len(servers), up), nameAll}
	case !listed && members == 1 && servers[0].srvr["Mode"] != "standalone":
		return Finding{"ensemble", Note, "of how many servers is not known: the URL names one, and /zookeeper/config does not tell", nameAll}
	}
	f := quorumFinding("ensemble", "server", "answer", members, min(up, members))
	if !listed && members > 1 {
		f.Value += ", if the URL names all"
	}
	return f
}

// waiting is how many requests may wait in a server before it is worth a word. At 1,000 it takes no more: globalOutstandingLimit.
const waiting = 100

func (s *zkServer) finding() Finding {
	check := "server " + s.addr
	switch {
	case errors.Is(s.err, errWhitelist):
		return Finding{check, Note, "version and mode are not known: srvr is " + s.err.Error(), "allow srvr and conf there"}
	case s.err != nil:
		return Finding{check, Note, "does not serve: " + s.err.Error(), "start it, or see whether it reaches the others"}
	}
	version, _, _ := strings.Cut(s.srvr["Zookeeper version"], "-")
	outstanding, _ := strconv.Atoi(s.srvr["Outstanding"])
	return tell(check, fmt.Sprintf("ZooKeeper %s, %s, %d requests wait", version, s.srvr["Mode"], outstanding), outstanding <= waiting, Note,
		"its disk is slow, or Java collects garbage: sessions end if that lasts")
}

func zooKeeperSession(e zklock.Ensemble) Finding {
	return tell("session timeout", fmt.Sprintf("%v, asked for %v", e.Granted, e.Asked), e.Granted <= e.Asked, Note,
		"minSessionTimeout makes it longer: the locks of a process that died stay taken for so long")
}

// zooKeeperTicks judges settings that a session's end rests on, by the servers that tell them.
func zooKeeperTicks(e zklock.Ensemble, servers []zkServer) []Finding {
	var all []Finding
	for _, s := range servers {
		tick, least := s.times("tickTime", time.Millisecond), s.times("minSessionTimeout", time.Millisecond)
		if tick == 0 {
			continue
		}
		all = append(all, tell("minSessionTimeout of "+s.addr, fmt.Sprintf("%v, with ticks of %v", least, tick), least >= 2*tick, Unmet,
			"2 ticks are the least: else sessions may end before their clients know"))
		if patience := s.times("syncLimit", tick); patience > 0 { // a server that is alone has none
			most := e.Granted * 7 / 12
			all = append(all, tell("syncLimit of "+s.addr, fmt.Sprintf("%v, of a session of %v", patience, e.Granted), patience <= most, Unmet,
				fmt.Sprintf("make it %v at most, or sessions longer (session-timeout in the URL): a leader that is cut off may keep a lock that another one gives away", most)))
		}
	}
	if len(all) == 0 {
		return []Finding{{"settings", Note, "tickTime, minSessionTimeout and syncLimit are not known: conf is " + errWhitelist.Error(),
			"allow conf there; syncLimit ticks are to be no more than 7/12 of the session timeout"}}
	}
	return all
}

// times reads a setting that is so many of a unit; 0 if it is not known.
func (s *zkServer) times(name string, unit time.Duration) time.Duration {
	n, _ := strconv.ParseInt(s.conf[name], 10, 32)
	return time.Duration(n) * unit
}

func zooKeeperAccess(acl []zk.ACL) Finding {
	if acl == nil {
		return Finding{"access", Note, "not known: this user may not ask", "getAcl tells it to who may"}
	}
	var open []string
	for _, a := range acl {
		if a.Scheme == "world" && a.Perms&(zk.PermDelete|zk.PermWrite|zk.PermCreate|zk.PermAdmin) != 0 {
			open = append(open, a.ID)
		}
	}
	slices.Sort(open)
	text := "those who have taken locks here, by a password"
	if len(open) > 0 {
		text = "anybody who reaches the servers can free each lock"
	}
	return tell("access", text, len(open) == 0, Note, "give the URL a user and a password, and remove the locks' root once, or let only those reach them who may")
}
