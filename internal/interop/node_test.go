package interop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// TestNodeRedlock tests node-redlock with ioredis.
func TestNodeRedlock(t *testing.T) {
	node, npm := livetest.Binary(t, "node", "node"), livetest.Binary(t, "node", "npm")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("node")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Logf("%s", out)
		skipOrFail(t, fmt.Sprintf("npm ci failed: %v", err))
	}
	run(t, func(t *testing.T, addr string) foreignLocker {
		return startNode(t, node, filepath.Join(dir, "redlock.mjs"), addr)
	})
}

// skipOrFail skips a test for a reason, or fails it if SNIB_REQUIRE names node.
func skipOrFail(t *testing.T, why string) {
	if required := os.Getenv("SNIB_REQUIRE"); slices.Contains(strings.FieldsFunc(required, func(r rune) bool { return r == ',' || r == ' ' }), "node") {
		t.Fatalf("%s, but SNIB_REQUIRE=%s", why, required)
	}
	t.Skipf("%s (SNIB_REQUIRE=node makes that a failure)", why)
}

// A nodeClient is a process that runs redlock.mjs.
type nodeClient struct {
	mu      sync.Mutex
	in      io.Writer
	last    int
	pending map[int]chan nodeResponse
	ended   chan struct{}
}

type nodeRequest struct {
	ID    int    `json:"id"`
	Order string `json:"order"`
	Name  string `json:"name,omitempty"`
	TTL   int64  `json:"ttl,omitempty"` // milliseconds
	Wait  bool   `json:"wait,omitempty"`
	Value string `json:"value,omitempty"`
}

type nodeResponse struct {
	ID      int    `json:"id"`
	Value   string `json:"value"`
	Refused bool   `json:"refused"`
	Error   string `json:"error"`
}

func startNode(t *testing.T, node, script, addr string) *nodeClient {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, script, host, port)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &nodeClient{in: in, pending: make(map[int]chan nodeResponse), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var a nodeResponse
			if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
				t.Errorf("node said %q: %v", lines.Bytes(), err)
				continue
			}
			c.mu.Lock()
			c.pending[a.ID] <- a
			delete(c.pending, a.ID)
			c.mu.Unlock()
		}
	}()
	t.Cleanup(func() { // the end of its input makes it exit
		in.Close()
		timer := time.AfterFunc(livetest.Patience, func() { cmd.Process.Kill() })
		defer timer.Stop()
		<-c.ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("node: %v", err)
		}
	})
	return c
}

func (c *nodeClient) send(ctx context.Context, o nodeRequest) (string, error) {
	answered := make(chan nodeResponse, 1)
	c.mu.Lock()
	c.last++
	o.ID = c.last
	c.pending[o.ID] = answered
	text, err := json.Marshal(o)
	if err == nil {
		_, err = c.in.Write(append(text, '\n'))
	}
	c.mu.Unlock()
	if err != nil {
		return "", err
	}
	select {
	case a := <-answered:
		switch {
		case a.Refused:
			return "", errRefused
		case a.Error != "":
			return "", errors.New(a.Error)
		}
		return a.Value, nil
	case <-c.ended:
		return "", errors.New("node has ended")
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (c *nodeClient) try(name string, ttl time.Duration) (hold, error) {
	return c.acquire(context.Background(), nodeRequest{Order: "acquire", Name: name, TTL: ttl.Milliseconds()})
}

func (c *nodeClient) wait(ctx context.Context, name string, ttl time.Duration) (hold, error) {
	return c.acquire(ctx, nodeRequest{Order: "acquire", Name: name, TTL: ttl.Milliseconds(), Wait: true})
}

func (c *nodeClient) acquire(ctx context.Context, o nodeRequest) (hold, error) {
	value, err := c.send(ctx, o)
	return nodeHold{c, value}, err
}

type nodeHold struct {
	c *nodeClient
	v string
}

func (h nodeHold) value() string { return h.v }

func (h nodeHold) extend(ttl time.Duration) error {
	_, err := h.c.send(context.Background(), nodeRequest{Order: "extend", Value: h.v, TTL: ttl.Milliseconds()})
	return err
}

func (h nodeHold) release() error {
	_, err := h.c.send(context.Background(), nodeRequest{Order: "release", Value: h.v})
	return err
}
