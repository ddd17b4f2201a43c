package pattern

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/redislock/redisfence"
)

// A guardedStock is the stock behind a guard, which refuses the tokens of earlier holds.
type guardedStock struct {
	read, write string // what its commands are called
	open        func(context.Context, fence.Hold) (claimedStock, error)
}

// A claimedStock is a guardedStock for the hold that has claimed it.
type claimedStock struct {
	read  func(context.Context) (string, error)
	write func(ctx context.Context, stock string) error
}

// workThrough makes the client work through a guard. It claims the stock before it reads it, and
// from then on the guard refuses earlier holds.
func (c *Client) workThrough(g guardedStock, l *snibClient) {
	var claimed claimedStock
	c.Read = func(ctx context.Context) (int, error) {
		_, err := l.traced(fmt.Sprintf("claim %s, token %d", StockName, l.lock.Token()), func() (_ string, err error) {
			claimed, err = g.open(ctx, l.lock)
			return "ok", err
		})
		if err != nil {
			return 0, err
		}
		text, err := l.traced(g.read+" "+StockName, func() (string, error) { return claimed.read(ctx) })
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(text)
	}
	c.Write = func(ctx context.Context, n int) error {
		text := strconv.Itoa(n)
		_, err := l.traced(g.write+" "+StockName+" "+text, func() (string, error) { return "OK", claimed.write(ctx, text) })
		return err
	}
}

// traced sends a command to a guard. The error is [ErrRefused] if the guard refused the
// token.
func (c *snibClient) traced(command string, send func() (answer string, err error)) (string, error) {
	c.trace.Before(command)
	answer, err := send()
	if stale, ok := errors.AsType[*fence.RefusedError](err); ok {
		c.trace.After(command, fmt.Sprintf("REFUSED: token %d is older than %d", stale.Mark.Token, stale.Last.Token))
		return "", ErrRefused
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", command, err)
	}
	c.trace.After(command, answer)
	return answer, nil
}

// redisGuard guards the stock in Redis.
func redisGuard(client rueidis.Client) guardedStock {
	g := redisfence.Guard{Client: client, Key: GuardKey}
	return guardedStock{read: "GET", write: "SET", open: func(ctx context.Context, hold fence.Hold) (claimedStock, error) {
		h, err := g.Open(ctx, hold)
		return claimedStock{
			read: func(ctx context.Context) (string, error) {
				answer, err := h.Do(ctx, "GET", StockName)
				if err != nil {
					return "", err
				}
				return answer.ToString()
			},
			write: func(ctx context.Context, stock string) error {
				_, err := h.Do(ctx, "SET", StockName, stock)
				return err
			},
		}, err
	}}
}

// fileGuard guards the stock in a file.
func fileGuard(path string) guardedStock {
	g := fence.File{Path: path, Adopt: true} // whoever filled the stock did it without a guard
	return guardedStock{read: "read", write: "write", open: func(ctx context.Context, hold fence.Hold) (claimedStock, error) {
		h, err := g.Open(ctx, hold)
		return claimedStock{
			read: func(ctx context.Context) (string, error) {
				data, err := h.Read(ctx)
				return string(data), err
			},
			write: func(ctx context.Context, stock string) error { return h.Write(ctx, []byte(stock)) },
		}, err
	}}
}
