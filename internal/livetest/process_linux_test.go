package livetest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// serverVar is the environment variable that makes this test program a server.
const serverVar = "LIVETEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverVar) == "" {
		os.Exit(Main(m, func(struct{}, context.Context) error {
			time.Sleep(time.Hour) // a job that hangs: it does not heed the end of its input
			return nil
		}))
	}
	if _, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", os.Args[1])); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

// TestNothingOutlives kills another process of this test program, and checks that the
// server and the child that it started end as well.
func TestNothingOutlives(t *testing.T) {
	const inner = "LIVETEST_INNER"
	if os.Getenv(inner) != "" {
		server := Start(t, Command{
			Name: "plain",
			Path: os.Args[0],
			Args: func(port int) []string { return []string{strconv.Itoa(port)} },
			Env:  []string{serverVar + "=1"},
		})
		fmt.Println("pids", server.PID(), StartChild(t, struct{}{}).cmd.Process.Pid)
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNothingOutlives$", "-test.v")
	cmd.Env = append(os.Environ(), inner+"=1")
	out, err := cmd.StdoutPipe()
	Must(t, err, "start the inner test")
	Must(t, cmd.Start(), "start the inner test")
	var server, child int
	for lines := bufio.NewScanner(out); child == 0 && lines.Scan(); {
		fmt.Sscanf(lines.Text(), "pids %d %d", &server, &child)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if child == 0 {
		t.Fatal("the inner test has started nothing")
	}
	for what, pid := range map[string]int{"server": server, "child": child} {
		Await(t, "end of the "+what, func() error {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if got := state(string(stat)); got != "X" && got != "Z" {
				return fmt.Errorf("the state of process %d is %s", pid, got)
			}
			return nil
		})
	}
}
