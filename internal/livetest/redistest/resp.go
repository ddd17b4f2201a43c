package redistest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// timeout is the timeout for one answer, long enough for a busy machine.
const timeout = 20 * time.Second

// An Error is an error reply of Redis, such as "MOVED 1 127.0.0.1:7001".
type Error string

func (e Error) Error() string { return string(e) }

// isDenied reports whether the error is about the client's permissions.
func (e Error) isDenied() bool {
	kind, _, _ := strings.Cut(string(e), " ")
	return kind == "NOAUTH" || kind == "NOPERM" || kind == "WRONGPASS"
}

// Do sends one command on a new connection as the default user, with TLS and password if the node
// requires them. Arguments are formatted as by fmt.Sprint. The answer is a string, an int64, nil,
// or a []any of these and of [Error]. If Redis replies with an error, err is an Error.
func (n *Node) Do(args ...any) (answer any, err error) { return n.do(n.Addr(), args...) }

func (n *Node) do(addr string, args ...any) (any, error) {
	conn, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // the outcome is known already
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	if n.tls != nil {
		conn = tls.Client(conn, n.tls)
	}
	return exchange(conn, n.authorized(args)...)
}

// exchange sends commands, one after the other, and returns the answer to the last one.
func exchange(conn net.Conn, commands ...[]any) (any, error) {
	in := bufio.NewReader(conn)
	var answer any
	for _, args := range commands {
		request := fmt.Appendf(nil, "*%d\r\n", len(args))
		for _, arg := range args {
			text := fmt.Sprint(arg)
			request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(text), text)
		}
		if _, err := conn.Write(request); err != nil {
			return nil, err
		}
		var err error
		if answer, err = read(in); err != nil {
			return nil, err
		}
		if no, ok := answer.(Error); ok {
			return nil, no
		}
	}
	return answer, nil
}

// read reads one RESP2 reply.
func read(in *bufio.Reader) (any, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, errors.New("redis answers with an empty line")
	}
	kind, text := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return text, nil
	case '-':
		return Error(text), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return nil, err
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		text := make([]byte, n+2)
		_, err := io.ReadFull(in, text)
		return string(text[:n]), err
	case kind == '*':
		list := make([]any, n)
		for i := range list {
			if list[i], err = read(in); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("redis answers %q", line)
}
