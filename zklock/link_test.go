package zklock

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"time"
)

// A script is a connection whose server sends a fixed stream. It records what it is sent.
type script struct {
	net.Conn
	io.Reader
	sent []byte
}

func (s *script) Read(b []byte) (int, error)      { return s.Reader.Read(b) }
func (s *script) Write(b []byte) (int, error)     { s.sent = append(s.sent, b...); return len(b), nil }
func (s *script) SetReadDeadline(time.Time) error { return nil }

// packet returns a packet, whose fields are of type int32, int64 or string.
func packet(fields ...any) []byte {
	var body bytes.Buffer
	for _, f := range fields {
		if text, ok := f.(string); ok {
			body.WriteString(text)
			continue
		}
		_ = binary.Write(&body, binary.BigEndian, f) // a buffer takes everything
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(body.Len())), body.Bytes()...)
}

// TestTransactionsHidden checks that the client library sees no transaction in the heads of
// answers, in whatever pieces it reads them, and everything else as it was sent.
func TestTransactionsHidden(t *testing.T) {
	const version, millis, id = int32(0), int32(6000), int64(7)
	const watchEvent, noError = int32(-1), int32(0)
	stream := func(first, second int64) []byte {
		return bytes.Join([][]byte{
			packet(version, millis, id, "password"),
			packet(int32(1), first, noError, "body"),
			packet(watchEvent, int64(-1), noError, "event"),
			packet(int32(-2), int64(99), noError), // a ping: the library ignores its transaction
			packet(int32(2), second, noError),
		}, nil)
	}
	for name, read := range map[string]func(io.Reader) io.Reader{
		"Whole":  func(r io.Reader) io.Reader { return r },
		"Halves": iotest.HalfReader,
		"Bytes":  iotest.OneByteReader,
	} {
		t.Run(name, func(t *testing.T) {
			s := &session{d: &Driver{}}
			c := monitored(s, &script{Reader: bytes.NewReader(stream(41, 40))})
			got, err := io.ReadAll(read(c))
			if want := stream(0, 0); err != nil || !bytes.Equal(got, want) {
				t.Errorf("the library reads (error %v)\n%x, want\n%x", err, got, want)
			}
			if got := s.lastSeen(); got != 41 {
				t.Errorf("the last transaction is %d, want the greatest of the answers, 41", got)
			}
		})
	}
}

// TestTransactionSent checks in which requests the last transaction is sent. Watches are set again
// from where the last connection ended, although there may have been answers on this one before.
func TestTransactionSent(t *testing.T) {
	const zxid, later = 41, 50
	const opGetData, opSetWatches = int32(4), int32(101)
	requests := func(zxid int64) [][]byte {
		return [][]byte{
			packet(int32(0), zxid, int32(6000), int64(7), "password"),
			packet(int32(1), opGetData, int64(0), "a path"),
			packet(int32(2), opSetWatches, zxid, "some paths"),
		}
	}
	s, out := &session{d: &Driver{}, lastTransaction: zxid}, &script{}
	c := monitored(s, out)
	for _, request := range requests(0) {
		before := bytes.Clone(request)
		if n, err := c.Write(request); n != len(request) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
		if !bytes.Equal(request, before) {
			t.Errorf("Write has changed the library's buffer from %x to %x", before, request)
		}
		s.recordTransaction(later)
	}
	if want := bytes.Join(requests(zxid), nil); !bytes.Equal(out.sent, want) {
		t.Errorf("the server gets\n%x, want\n%x", out.sent, want)
	}
}

func monitored(s *session, conn net.Conn) *monitoredConn {
	return &monitoredConn{Conn: conn, reader: bufio.NewReader(conn), s: s, handshakeDeadline: time.Now().Add(time.Hour)}
}
