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

// workThrough makes the client work through a guard of the stock in Redis. It claims the stock
// before it reads it, and from then on the guard refuses earlier holds.
func (c *Client) workThrough(client rueidis.Client, l *snibClient) {
	g := redisfence.Guard{Client: client, Key: GuardKey}
	var claimed *redisfence.Handle
	c.Read = func(ctx context.Context) (int, error) {
		_, err := l.traced(fmt.Sprintf("claim %s, token %d", StockName, l.lock.Token()), func() (_ string, err error) {
			claimed, err = g.Open(ctx, l.lock)
			return "ok", err
		})
		if err != nil {
			return 0, err
		}
		text, err := l.traced("GET "+StockName, func() (string, error) {
			answer, err := claimed.Do(ctx, "GET", StockName)
			if err != nil {
				return "", err
			}
			return answer.ToString()
		})
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(text)
	}
	c.Write = func(ctx context.Context, n int) error {
		text := strconv.Itoa(n)
		_, err := l.traced("SET "+StockName+" "+text, func() (string, error) {
			_, err := claimed.Do(ctx, "SET", StockName, text)
			return "OK", err
		})
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
