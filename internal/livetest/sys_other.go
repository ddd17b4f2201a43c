//go:build !linux

package livetest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// unsupported says why no server can be started on this system. [Binary] reports it to
// the test, so nothing below is reached.
const unsupported = "servers for tests are started on Linux only"

func childAttributes(sys *syscall.SysProcAttr) *syscall.SysProcAttr { return sys }

func kill(int)                  {}
func quit(int, os.Signal) error { return errors.ErrUnsupported }
func cpuTime(int) time.Duration { return 0 }
func sleep(d time.Duration)     { time.Sleep(d) }

func reservePort(int) (int, func(), error) { return 0, nil, errors.ErrUnsupported }

func inode(fs.FileInfo) uint64 { return 0 }

func lockFile(context.Context, string) (unlock func(), err error) { return nil, errors.ErrUnsupported }

// Hang fails.
func Hang(int) error { return errors.ErrUnsupported }

// Resume fails.
func Resume(int) error { return errors.ErrUnsupported }

// Sys returns nil.
func (a Account) Sys() *syscall.SysProcAttr { return nil }

func (a Account) ids() (uid, gid int, ok bool) { return 0, 0, false }

func (a Account) give(string) error { return nil }
