package redlock

import (
	"errors"

	"github.com/redis/rueidis"
)

// A silence says that too few nodes take part in what was asked. It matches errNoMajority and what nodes answered instead, such as that the
// password is wrong, but not how others were out of reach: that is no answer to the caller's own question.
type silence struct {
	text    string
	answers []error
}

func (e *silence) Error() string { return e.text }

func (e *silence) Unwrap() []error { return append([]error{errNoMajority}, e.answers...) }

// note remembers what a node answered, if it did.
func (e *silence) note(err error) {
	var answer *rueidis.RedisError
	if errors.As(err, &answer) {
		e.answers = append(e.answers, answer)
	}
}

// An oneLine is an error that a server answered, in one line.
type oneLine struct {
	text string
	err  error
}

func (e *oneLine) Error() string { return e.text }

func (e *oneLine) Unwrap() error { return e.err }
