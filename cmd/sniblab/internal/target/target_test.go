package target

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// roleVar is the environment variable that makes a process of the test program a target.
const roleVar = "SNIB_TEST_TARGET"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		os.Exit(run(role))
	}
	os.Exit(m.Run())
}

// run is a target that is right, or breaks the protocol in one way.
func run(role string) int {
	switch role {
	case "right":
		if err := Serve(os.Stdin, os.Stdout, func(context.Context, Message) (Locker, error) {
			return new(fake).acquire, nil
		}); err != nil {
			return 1
		}
		return 0
	case "refuses":
		_ = Serve(os.Stdin, os.Stdout, func(context.Context, Message) (Locker, error) {
			return nil, errors.New("no such server")
		})
		return 0
	case "garbage":
		fmt.Println("hello")
	case "id is a text":
		fmt.Println(`{"type":"granted","id":"1"}`)
	case "token is negative":
		fmt.Println(`{"type":"granted","id":1,"token":-7}`)
	case "held is a number":
		fmt.Println(`{"type":"held","id":1,"held":1}`)
	case "error is a list":
		fmt.Println(`{"type":"error","error":["no"]}`)
	case "early":
		fmt.Println(`{"type":"granted","id":1}`)
	case "nameless":
		fmt.Println(`{"type":"ready"}`)
		fmt.Println(`{"type":"lost"}`)
	case "unasked":
		fmt.Println(`{"type":"ready"}`)
		fmt.Println(`{"type":"granted","id":7}`)
	case "other words":
		fmt.Println(`{"type":"ready"}`)
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if strings.Contains(lines.Text(), `"acquire"`) {
				fmt.Println(`{"type":"ok","id":1}`)
			}
		}
	case "twice":
		fmt.Println(`{"type":"ready"}`)
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			switch text := lines.Text(); {
			case strings.Contains(text, `"acquire"`):
				fmt.Println(`{"type":"granted","id":1}`)
			case strings.Contains(text, `"held"`):
				fmt.Println(`{"type":"held","id":1,"held":true}`)
				fmt.Println(`{"type":"held","id":1,"held":true}`)
			}
		}
	case "child":
		child := exec.Command("sleep", "1000") // it keeps the output open
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			return 1
		}
		return 8
	case "long":
		fmt.Println(strings.Repeat("x", maxLine+1))
	case "crash":
		fmt.Fprintln(os.Stderr, "out of\nluck")
		return 7
	}
	select {} // the judge ends it
}

// A fake is a lock that nobody else has. Its second hold is denied, and its third is lost at once.
type fake struct{ n int }

func (f *fake) acquire(context.Context, time.Duration) (*Hold, error) {
	f.n++
	switch f.n {
	case 2:
		return nil, ErrDenied
	case 4:
		return nil, errors.New("the server is gone")
	}
	lost := make(chan struct{})
	if f.n == 3 {
		close(lost)
	}
	return &Hold{
		Token: uint64(f.n), Lost: lost,
		Held:    func() bool { return f.n != 3 },
		Release: func(context.Context) error { return nil },
	}, nil
}

// start starts a target, which gets messages by the channel.
func start(t *testing.T, role string) (*Process, <-chan Message, error) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("targets are run on Linux only")
	}
	t.Setenv(roleVar, role)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	messages := make(chan Message, 10)
	p, err := Start(t.Context(), []string{exe}, nil, Message{Name: "x", TTL: 1000}, func(m Message) { messages <- m })
	if err == nil {
		t.Cleanup(p.Kill)
	}
	return p, messages, err
}

// TestRight speaks with a target that keeps to the protocol.
func TestRight(t *testing.T) {
	p, messages, err := start(t, "right")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		send Message
		want []Message // besides the ID
	}{
		{Message{Type: Acquire, ID: 1}, []Message{{Type: Granted, Token: 1}}},
		{Message{Type: Check, ID: 1}, []Message{{Type: Check, Held: true}}},
		{Message{Type: Release, ID: 1}, []Message{{Type: Released}}},
		{Message{Type: Acquire, ID: 2}, []Message{{Type: Denied}}},
		{Message{Type: Acquire, ID: 3}, []Message{{Type: Granted, Token: 3}, {Type: Lost}}},
		{Message{Type: Check, ID: 3}, []Message{{Type: Check}}},
		{Message{Type: Acquire, ID: 4}, []Message{{Type: Failed, Error: "the server is gone"}}},
	} {
		p.Send(step.send)
		for _, want := range step.want {
			want.ID = step.send.ID
			select {
			case got := <-messages:
				if got != want {
					t.Errorf("after %+v: got %+v, want %+v", step.send, got, want)
				}
			case <-p.Failed():
				t.Fatal(p.Err())
			}
		}
	}
	p.Kill()
	if err := p.Err(); err != nil {
		t.Errorf("a target that we killed has failed: %v", err)
	}
}

// TestWrong checks what the judge says about targets that do not keep to the protocol.
func TestWrong(t *testing.T) {
	tests := []struct{ role, want string }{
		{"refuses", "it gives up: no such server"},
		{"garbage", `line 1 of its output, "hello": it is no message`},
		{"id is a text", `its field "id" must be an integer, and has the type string`},
		{"token is negative", `its field "token" must be a positive integer, and has the type number`},
		{"held is a number", `its field "held" must be true or false, and has the type number`},
		{"error is a list", `its field "error" must be a string, and has the type array`},
		{"early", `"granted" is no answer for hold 1: the judge has not sent "acquire" with this id`},
		{"nameless", `it has no "id"; repeat the id of the judge's message`},
		{"unasked", `"granted" is no answer for hold 7: the judge has not sent "acquire" with this id`},
		{"other words", `"ok" is no answer for hold 1: answer "acquire" with "granted", "denied" or "error"`},
		{"twice", `"held" is no answer for hold 1: the judge has asked nothing; only "lost" is sent unasked`},
		{"child", "it ended by itself: exit status 8"},
		{"long", "a line of its output is longer than 65536 bytes"},
		{"crash", "it ended by itself: exit status 7; its standard error ends with: out of luck"},
	}
	for _, tt := range tests {
		t.Run(tt.role, func(t *testing.T) {
			p, _, err := start(t, tt.role)
			if err == nil { // it fails when it is ready
				p.Send(Message{Type: Acquire, ID: 1})
				p.Send(Message{Type: Check, ID: 1})
				<-p.Failed()
				err = p.Err()
			}
			var failed *Error
			if !errors.As(err, &failed) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q", err, tt.want)
			}
		})
	}
}

// TestNoProgram checks the error for a program that does not exist.
func TestNoProgram(t *testing.T) {
	if _, err := Start(t.Context(), []string{"/nowhere/lock"}, nil, Message{}, nil); err == nil || !strings.Contains(err.Error(), "target /nowhere/lock: ") {
		t.Errorf("Start = %v", err)
	}
}

// TestPageDialogue has a target answer the messages that docs/lab.md shows.
func TestPageDialogue(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/lab.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```text\n")
	text, _, found := strings.Cut(text, "```")
	if !found {
		t.Fatal("docs/lab.md has no dialogue")
	}
	in, judge := io.Pipe()
	answers, out := io.Pipe()
	go func() {
		locker := (&fake{n: 6}).acquire
		out.CloseWithError(Serve(in, out, func(context.Context, Message) (Locker, error) { return locker, nil }))
	}()
	defer judge.Close() // ends Serve
	lines := bufio.NewScanner(answers)
	for line := range strings.Lines(text) {
		who, message, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch who {
		case ">":
			var m Message
			if err := json.Unmarshal([]byte(message), &m); err != nil {
				t.Fatal(err)
			}
			if sent, err := json.Marshal(m); err != nil || string(sent) != message {
				t.Errorf("the judge sends %s (%v); the page has %s", sent, err, message)
			}
			if _, err := io.WriteString(judge, message+"\n"); err != nil {
				t.Fatal(err)
			}
		case "<":
			if !lines.Scan() || lines.Text() != message {
				t.Fatalf("the target answers %q (%v); the page has %s", lines.Text(), lines.Err(), message)
			}
		default:
			t.Errorf("a line of neither: %s", line)
		}
	}
}
