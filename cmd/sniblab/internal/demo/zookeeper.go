package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/zklock"
)

// A zookeeperServer is a ZooKeeper server with the lock. The stock is in a file.
type zookeeperServer struct {
	addr     string
	locks    *zklock.Driver // it sees locks of go-zookeeper, too
	director *Director
	file     string // with the stock
}

// Zookeeper returns the ZooKeeper server of the demo, without a lock and with a full stock.
func (s *Director) Zookeeper() *zookeeperServer {
	s.starting("a ZooKeeper server")
	if s.zookeeper == nil {
		addr := zktest.Single(s.t).Addr()
		locks, err := zklock.New([]string{addr})
		check("zookeeper", err)
		s.t.Cleanup(func() { _ = locks.Close() }) // it holds nothing
		s.zookeeper = &zookeeperServer{addr: addr, locks: locks}
	}
	z := s.zookeeper
	z.director = s
	s.Await("the lock to be free", func() bool {
		holder, err := z.holder()
		return err == nil && holder == ""
	})
	z.file = filepath.Join(s.t.TempDir(), pattern.StockName)
	check("fill the stock", os.WriteFile(z.file, []byte(strconv.Itoa(OpeningStock)), 0o600))
	s.look, s.stock = z.look, z.stock
	s.Begin()
	return z
}

// Client starts a client, whose session ends after a silence of the given timeout.
func (z *zookeeperServer) Client(name string, p pattern.Name, timeout time.Duration) *Client {
	return z.director.start(pattern.Spec{Pattern: p, URLs: []string{z.addr}, Stock: z.file, Client: name, TTL: timeout})
}

// AwaitSessionEnd waits until the server has ended the session of a client that held the lock.
func (z *zookeeperServer) AwaitSessionEnd(c *Client) {
	z.director.Await("the end of "+c.Name+"'s session", func() bool {
		holder, err := z.holder()
		return err == nil && holder != c.Name
	})
	z.director.Say(z.director.demo.Server, "%s's session ends, its node is deleted", c.Name)
}

// look returns the state of the lock, and of the stock.
func (z *zookeeperServer) look() []string {
	lock := "the lock is free"
	if holder, err := z.holder(); err == nil && holder != "" {
		lock = holder + "'s node is the first"
	}
	return []string{lock, fmt.Sprintf("%s = %d", pattern.StockName, z.stock())}
}

// holder names the client whose node is the first, or returns "".
func (z *zookeeperServer) holder() (string, error) {
	status, err := z.locks.Status(z.director.ctx, pattern.LockName)
	if err != nil || len(status.Holders) == 0 {
		return "", err
	}
	h := status.Holders[0]
	if h.Holder.Label != "" {
		return h.Holder.Label, nil
	}
	return h.Holder.Host, nil // where the text of a node of go-zookeeper's lock is shown
}

func (z *zookeeperServer) stock() int {
	data, _ := os.ReadFile(z.file) // 0 if the variant was interrupted
	n, _ := strconv.Atoi(string(data))
	return n
}
