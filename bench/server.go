package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is our own Redis server, on a free port of the loopback interface. It
// keeps nothing on disk.
type server struct {
	addr    string
	version string
	cmd     *exec.Cmd
	dir     string
	control *redis.Client // one connection; it sends no commands of its own
}

// startTimeout is how long a server may take to start, also a JVM on a busy machine.
const startTimeout = time.Minute

func startServer(ctx context.Context) (*server, error) {
	exe, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("a Redis server is needed (Debian: apt install redis-server): %w", err)
	}
	var s *server
	for range 3 { // another process may take the port before the server does
		if s, err = tryServer(ctx, exe); err == nil {
			return s, nil
		}
	}
	return nil, err
}

func tryServer(ctx context.Context, exe string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "snib-bench-")
	if err != nil {
		return nil, err
	}
	s := &server{addr: net.JoinHostPort("127.0.0.1", port), dir: dir}
	s.cmd = exec.Command(exe, "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "no")
	s.cmd.SysProcAttr = childAttributes()
	s.control = redis.NewClient(&redis.Options{Addr: s.addr, PoolSize: 1, MaxRetries: -1})
	if err := s.cmd.Start(); err != nil {
		return nil, cmp.Or(err, os.RemoveAll(dir))
	}
	if err := s.awaitReady(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// awaitReady waits until the server answers. It fails if another server has the port.
func (s *server) awaitReady(ctx context.Context) error {
	var err error
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		var text string
		if text, err = s.control.Info(ctx, "server").Result(); err != nil {
			continue
		}
		info := parseInfo(text)
		if info["process_id"] != strconv.Itoa(s.cmd.Process.Pid) {
			return errors.New("another server has the port")
		}
		s.version = info["redis_version"]
		return nil
	}
	return fmt.Errorf("the Redis server did not start: %w", cmp.Or(err, ctx.Err()))
}

func (s *server) stop() {
	_ = s.control.Close()
	_ = s.cmd.Process.Kill() // it has nothing to save
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// stall stops the server's process for the given time.
func (s *server) stall(d time.Duration) error {
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(d)
	return s.cmd.Process.Signal(syscall.SIGCONT)
}

// counters contains what a server has counted since its start.
type counters struct {
	Commands int64 // executed, including those in scripts
	Reads    int64 // from sockets
	CPU      time.Duration
	Keys     int64 // present now
}

func (s *server) counters(ctx context.Context) (counters, error) {
	text, err := s.control.Info(ctx, "everything").Result()
	if err != nil {
		return counters{}, err
	}
	info := parseInfo(text)
	c := counters{Reads: parseCount(info["total_reads_processed"])}
	for key, value := range info {
		if strings.HasPrefix(key, "cmdstat_") {
			c.Commands += listField(value, "calls")
		}
	}
	for _, key := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, err := strconv.ParseFloat(info[key], 64)
		if err != nil {
			return counters{}, fmt.Errorf("the server's %s: %w", key, err)
		}
		c.CPU += time.Duration(seconds * float64(time.Second))
	}
	c.Keys = listField(info["db0"], "keys")
	return c, nil
}

// since returns what the server counted between two readings. It leaves out the readings
// themselves: the server counts the command of the first one after the answer, and the socket
// read of the second one before it.
func (c counters) since(before counters) counters {
	return counters{
		Commands: c.Commands - before.Commands - 1,
		Reads:    c.Reads - before.Reads - 1,
		CPU:      c.CPU - before.CPU,
		Keys:     c.Keys,
	}
}

func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok {
			info[key] = value
		}
	}
	return info
}

// listField returns a number from a list such as "calls=1,usec=2", or 0 if it has
// no such field.
func listField(list, name string) int64 {
	for part := range strings.SplitSeq(list, ",") {
		if value, ok := strings.CutPrefix(part, name+"="); ok {
			return parseCount(value)
		}
	}
	return 0
}

func parseCount(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // 0 if the server does not report it
	return n
}
