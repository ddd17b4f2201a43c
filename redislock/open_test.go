package redislock_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// secret is a password that must not be shown.
const secret = "tell-nobody-77"

// TestOpenRefuses opens servers that can't be used. The error comes in time, says what is
// wrong, and shows no password.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	plain := redistest.Single(t, redistest.Password(secret))
	users := redistest.Single(t,
		"user noinfo on >"+secret+" ~* &* +@all -info",
		"user nokeys on >"+secret+" ~other:* &* +@all",
		"user noscripts on >"+secret+" ~* &* +@all -@scripting")
	sentinel := redistest.Sentinel(t)
	hung := redistest.Single(t)
	hung.Hang()

	addr := refusing
	with := func(o rueidis.ClientOption, change func(*rueidis.ClientOption)) rueidis.ClientOption {
		change(&o)
		return o
	}
	briefly := func(o *rueidis.ClientOption) { o.Dialer.Timeout = refusalBrief }
	insecure := &tls.Config{InsecureSkipVerify: true}
	testRefuses(t, []refusesTest{
		{name: "WrongPassword", o: with(addr(plain.Addr()), func(o *rueidis.ClientOption) { o.Password = secret + "x" }),
			want: []string{"WRONGPASS"}},
		{name: "NoPassword", o: with(addr(plain.Addr()), func(o *rueidis.ClientOption) { o.Password = "" }),
			want: []string{"NOAUTH"}},
		{name: "NoSuchUser", o: with(addr(users.Addr()), func(o *rueidis.ClientOption) { o.Username = "nobody" }),
			want: []string{"WRONGPASS"}},
		{name: "NoInfo", o: with(addr(users.Addr()), func(o *rueidis.ClientOption) { o.Username = "noinfo" }),
			want: []string{"NOPERM"}},
		{name: "NoScripts", o: with(addr(users.Addr()), func(o *rueidis.ClientOption) { o.Username = "noscripts" }),
			want: []string{"+eval and +evalsha"}},
		{name: "TLSToPlain", o: with(addr(plain.Addr()),
			func(o *rueidis.ClientOption) { briefly(o); o.TLSConfig = insecure }), want: []string{"does the server speak TLS"}},
		{name: "NothingListens", o: addr(net.JoinHostPort("127.0.0.1", strconv.Itoa(livetest.FreePort(t)))),
			want: []string{"refused"}},
		{name: "NoAddress", o: addr(), want: []string{"address"}},
		{name: "Hung", o: with(addr(hung.Addr()), briefly), want: []string{"no answer within 2s"}},
		{name: "HungForLess", o: with(addr(hung.Addr()), func(o *rueidis.ClientOption) { o.ConnWriteTimeout = time.Second }),
			want: []string{"no answer within 1s"}},
		{name: "Silent", o: with(addr(fake(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })), briefly),
			want: []string{"no answer within 2s"}},
		{name: "HTTP", o: addr(fake(t, func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
		})), want: []string{"not Redis"}},
		{name: "SSH", o: addr(fake(t, func(c net.Conn) {
			_, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.2\r\n")
			time.Sleep(10 * time.Second) // waits for the client, as sshd does
		})), want: []string{"not Redis"}},
		{name: "HangsUp", o: addr(fake(t, func(net.Conn) {})), want: []string{"EOF", "reset"}},
		{name: "TooOld", o: addr(fakeRedis(t, "6.0.9")), want: []string{"6.0.9"}},
		{name: "MuchTooOld", o: addr(fakeRedis(t, "2.8.24")), want: []string{"2.8.24"}},
		{name: "NoSuchMaster", o: with(addr(sentinel.Sentinels()...), func(o *rueidis.ClientOption) {
			o.Password, o.Sentinel.MasterSet = "", "nosuchmaster"
			o.Sentinel.Dialer.Timeout = livetest.Patience
		}), want: []string{`no master "nosuchmaster"`}},
		{name: "Replica", o: with(addr(sentinel.Nodes()[1].Addr()), func(o *rueidis.ClientOption) { o.Password = "" }),
			want: []string{"a replica of " + sentinel.Nodes()[0].Addr()}},
		{name: "NoSentinel", o: with(addr(plain.Addr()), func(o *rueidis.ClientOption) {
			o.Sentinel.MasterSet, o.Sentinel.Password = "mymaster", secret
			o.Sentinel.Dialer.Timeout = livetest.Patience
		}), want: []string{"SENTINEL", "sentinel"}},
	})
}

// TestOpenRefusesTLS is TestOpenRefuses for a server that requires TLS.
func TestOpenRefusesTLS(t *testing.T) {
	t.Parallel()
	secure := redistest.Single(t, redistest.TLS, redistest.Password(secret))
	untrusted := refusing(secure.Addr())
	untrusted.TLSConfig = &tls.Config{ServerName: "localhost", MinVersion: tls.VersionTLS12}
	testRefuses(t, []refusesTest{
		{name: "PlainToTLS", o: refusing(secure.Addr()), want: []string{"does it require TLS", "broken pipe"}},
		{name: "UntrustedTLS", o: untrusted, want: []string{"certificate"}},
	})
}

// refusalBrief is the timeout of a client where a test awaits it.
const refusalBrief = 2 * time.Second

// A refusesTest opens a server that can't be used.
type refusesTest struct {
	name string
	o    rueidis.ClientOption
	opts []redislock.Option
	want []string // the error contains one of these
}

// refusing returns the options for a refusesTest, with the right password.
func refusing(addrs ...string) rueidis.ClientOption {
	o := rueidis.ClientOption{InitAddress: addrs, Password: secret}
	o.Dialer.Timeout = livetest.Patience
	return o
}

func testRefuses(t *testing.T, tests []refusesTest) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			began, machine := time.Now(), livetest.Lateness(t)
			type opened struct {
				d   *redislock.Driver
				err error
			}
			done := make(chan opened, 1)
			go func() {
				d, err := redislock.Open(t.Context(), tt.o, tt.opts...)
				done <- opened{d, err}
			}()
			var got opened
			select {
			case got = <-done:
			case <-time.After(livetest.Patience + enough):
				t.Fatalf("Open has not returned after %v", livetest.Patience+enough)
			}
			if took, late := time.Since(began), machine(); took > refusalBrief+5*time.Second+10*late {
				t.Errorf("Open took %v, on a machine that was late by %v", took, late)
			}
			if got.err == nil {
				got.d.Close()
				t.Fatal("Open = nil")
			}
			t.Logf("after %v: %v", time.Since(began).Round(time.Millisecond), got.err)
			if !slices.ContainsFunc(tt.want, func(s string) bool { return strings.Contains(got.err.Error(), s) }) {
				t.Errorf("Open = %q, want something about %q", got.err, tt.want)
			}
			if strings.Contains(got.err.Error(), secret) {
				t.Errorf("the error shows the password: %v", got.err)
			}
		})
	}
}

// TestDenied opens with the right to read, but not to lock. Acquire says at once which right is
// missing.
func TestDenied(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t,
		"user noscript on >"+secret+" ~* &* +@all -@scripting",
		"user nokeys on >"+secret+" ~other:* &* +@all",
		"user readonly on >"+secret+" ~* &* +@all -@write +eval +evalsha",
		"user least on >"+secret+
			" ~* resetchannels &snib.* -@all +@connection +@read +@write +@pubsub +@scripting +info +time +config|get "+
			"+cluster +role +scan"))
	for _, user := range []string{"nokeys", "readonly", "least"} {
		d := open(t, as(node, user))
		ctx, cancel := context.WithTimeout(t.Context(), enough)
		l, err := d.Acquire(ctx, request("job", user, time.Minute))
		if user == "least" {
			if err != nil {
				t.Errorf("%s: Acquire = %v", user, err)
			} else {
				free(t, l)
			}
		} else if err == nil || ctx.Err() != nil || strings.Contains(err.Error(), secret) ||
			!strings.Contains(err.Error(), "permissions") && !strings.Contains(err.Error(), "can't run this command") {
			t.Errorf("%s: Acquire = %v, %v, want what is not permitted", user, l, err)
		} else {
			t.Logf("%s: %v", user, err)
		}
		cancel()
	}
}

// TestWarnings opens servers with settings that break promises. Each is reported once.
func TestWarnings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		node func(t *testing.T) rueidis.ClientOption
		want []string // one for each warning
	}{
		{"Good", func(t *testing.T) rueidis.ClientOption { return at(redistest.Single(t).Addr()) }, nil},
		{"Evicts", func(t *testing.T) rueidis.ClientOption {
			return at(redistest.Single(t, "maxmemory 100mb", "maxmemory-policy allkeys-lru").Addr())
		}, []string{"allkeys-lru"}},
		{"NoEviction", func(t *testing.T) rueidis.ClientOption {
			return at(redistest.Single(t, "maxmemory 100mb", "maxmemory-policy noeviction").Addr())
		}, nil},
		{"NoMinReplicas", func(t *testing.T) rueidis.ClientOption { return bySentinel(redistest.Sentinel(t)) },
			[]string{"min-replicas-to-write"}},
		{"MinReplicas", func(t *testing.T) rueidis.ClientOption {
			return bySentinel(redistest.Sentinel(t, "min-replicas-to-write 1"))
		}, nil},
		{"Cluster", func(t *testing.T) rueidis.ClientOption {
			return rueidis.ClientOption{InitAddress: redistest.Cluster(t).Addrs()}
		}, []string{"min-replicas-to-write"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, tt.node(t))
			got := d.Info().Unmet
			if len(got) != len(tt.want) {
				t.Fatalf("Unmet = %q, want %d", got, len(tt.want))
			}
			for i, want := range tt.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("warning %q, want something about %s", got[i], want)
				}
			}
		})
	}
}

// TestNew makes a driver on the user's own client, which Close leaves open.
func TestNew(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	client, err := rueidis.NewClient(at(node.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	d, err := redislock.New(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	free(t, take(t, d, request("job", "a", time.Minute)))
	for range 2 {
		if err := d.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	if _, err := d.Acquire(t.Context(), request("job", "b", time.Minute)); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Acquire after Close = %v, want ErrClosed", err)
	}
	if err := client.Do(t.Context(), client.B().Ping().Build()).Error(); err != nil {
		t.Errorf("the user's client after Close: %v", err)
	}
	node.Kill()
	began := time.Now()
	slack := livetest.Slack(t)
	if d, err := redislock.New(t.Context(), client); err == nil {
		d.Close()
		t.Error("New on a client whose server is gone = nil")
	} else if took := time.Since(began); took > 6*time.Second+slack() {
		t.Errorf("New took %v, and ended with %v", took, err)
	}
}

func bySentinel(s *redistest.SentinelSetup) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: s.Sentinels(), Sentinel: rueidis.SentinelOption{MasterSet: s.MasterName()}}
}

// fake starts a server that is not Redis.
var fake = livetest.Fake

// fakeRedis starts a server that claims to be Redis of some version. Like an old one it talks
// RESP2 and lacks most commands.
func fakeRedis(t *testing.T, version string) (addr string) {
	return fake(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			words, err := command(in)
			if err != nil {
				return
			}
			answer := fmt.Sprintf("-ERR unknown command `%s`, with args beginning with:\r\n", words[0])
			switch strings.ToUpper(words[0]) {
			case "AUTH", "SELECT":
				answer = "+OK\r\n"
			case "PING":
				answer = "+PONG\r\n"
			case "CLUSTER":
				answer = "-ERR This instance has cluster support disabled\r\n"
			case "INFO":
				text := "# Server\r\nredis_version:" + version +
					"\r\nredis_mode:standalone\r\nrun_id:0123456789012345678901234567890123456789\r\n"
				answer = fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	})
}

func command(in *bufio.Reader) (words []string, err error) {
	var n, size int
	if _, err := fmt.Fscanf(in, "*%d\n", &n); err != nil || n < 1 {
		return nil, errors.New("not a command")
	}
	for range n {
		if _, err := fmt.Fscanf(in, "$%d\n", &size); err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return nil, err
		}
		words = append(words, string(text[:size]))
	}
	return words, nil
}

// TestOpenFull opens a server that has no connection left: it is full, and not unreachable. A
// real server ends the connection after its first answer, so the answer may get lost. This one
// does not.
func TestOpenFull(t *testing.T) {
	addr := fake(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			if _, err := command(in); err != nil {
				return
			}
			if _, err := io.WriteString(c, "-ERR max number of clients reached\r\n"); err != nil {
				return
			}
		}
	})
	d, err := redislock.Open(t.Context(), at(addr))
	if err == nil {
		d.Close()
	}
	if !errors.Is(err, driver.ErrFull) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Open = %v, want ErrFull and ErrUnavailable", err)
	}
}

// TestOpenGivenUp opens a server that hangs, with a context that ends. Open and New return then,
// and say that Redis has not answered.
func TestOpenGivenUp(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	client, err := rueidis.NewClient(at(node.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	node.Hang()
	defer node.Resume()
	o := at(node.Addr())
	o.Dialer.Timeout = time.Hour
	errEnough := errors.New("enough")
	slack := livetest.Slack(t)
	for name, open := range map[string]func(context.Context) (*redislock.Driver, error){
		"Open": func(ctx context.Context) (*redislock.Driver, error) { return redislock.Open(ctx, o) },
		"New":  func(ctx context.Context) (*redislock.Driver, error) { return redislock.New(ctx, client) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errEnough)
			defer cancel()
			began := time.Now()
			d, err := open(ctx)
			if d != nil || !errors.Is(err, errEnough) || !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("= %v, %v, want the cause of the context and ErrUnavailable", d, err)
			}
			if took := time.Since(began); took > 4*time.Second+slack() {
				t.Errorf("it took %v", took)
			}
		})
	}
}
