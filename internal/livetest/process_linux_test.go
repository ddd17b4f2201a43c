package livetest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// serverVar is the environment variable that makes this test program a server.
const serverVar = "LIVETEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverVar) == "" {
		os.Exit(m.Run())
	}
	if _, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", os.Args[1])); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

// TestNothingOutlives kills another process of this test program, and checks that the
// server that it started ends as well.
func TestNothingOutlives(t *testing.T) {
	const inner = "LIVETEST_INNER"
	if os.Getenv(inner) != "" {
		server := Start(t, Command{
			Name: "plain",
			Path: os.Args[0],
			Args: func(port int) []string { return []string{strconv.Itoa(port)} },
			Env:  []string{serverVar + "=1"},
		})
		fmt.Println("pid", server.PID())
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNothingOutlives$", "-test.v")
	cmd.Env = append(os.Environ(), inner+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		fmt.Sscanf(lines.Text(), "pid %d", &pid)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if pid == 0 {
		t.Fatal("the inner test has started no server")
	}
	Await(t, "end of the server", func() error {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if got := state(string(stat)); got != "X" && got != "Z" {
			return fmt.Errorf("the state of process %d is %s", pid, got)
		}
		return nil
	})
}
