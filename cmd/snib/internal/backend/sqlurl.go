package backend

import (
	"fmt"
	"net/url"
	"strings"
)

// A sqlURL is the URL of a database without its password. Only what has no secret in it goes to the library that reads the rest:
// errors of libraries repeat what they were given.
type sqlURL struct {
	redisKind // for the words of its errors

	rest        string // what follows the scheme, without password and password-file
	password    string
	hasPassword bool
}

// sqlForm is how the URL of a database is written.
const sqlForm = "://USER:PASSWORD@HOST:PORT/DATABASE"

// splitSQL reads what follows the scheme and its colon. A password in which a / or ? is not encoded would end up in other parts of
// the URL, which are shown, so it is refused.
func splitSQL(scheme, rest string) (u sqlURL, err error) {
	u.redisKind = redisKind{scheme: scheme, form: scheme + sqlForm}
	userinfo, hosts, path, query, err := u.split(rest)
	if err != nil {
		return u, err
	}
	user, password, hasPassword := strings.Cut(userinfo, ":")
	var user2 string
	if user2, err = url.PathUnescape(user); err == nil {
		u.password, err = url.PathUnescape(password)
	}
	if err != nil { // which says where, and so repeats a part of it
		return u, u.bad("its user or password has a %% that begins no code of a character; %% itself is written %%25")
	}
	query, file, err := u.takeFile(query)
	switch {
	case err != nil:
		return u, err
	case file != "" && hasPassword:
		return u, fmt.Errorf("%w URL: it has a password and a file for it; drop one of them", ErrConfig)
	case file != "":
		if u.password, err = secret("", file); err != nil {
			return u, err
		}
	}
	u.hasPassword = hasPassword || file != ""
	u.rest = "//"
	if userinfo != "" {
		u.rest += url.User(user2).String() + "@"
	}
	u.rest += hosts + "/" + path
	if query != "" {
		u.rest += "?" + query
	}
	return u, nil
}

// takeFile takes the parameter password-file out of a query, and refuses a password there: it would not stay secret.
func (u sqlURL) takeFile(query string) (rest, file string, err error) {
	var others []string
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		switch name {
		case "":
		case "password":
			return "", "", u.bad("a password does not belong behind the ?; write it before the host, or use password-file")
		case "password-file":
			if file, err = url.PathUnescape(value); err != nil || file == "" {
				return "", "", u.bad("parameter password-file names no file")
			}
		default:
			others = append(others, pair)
		}
	}
	return strings.Join(others, "&"), file, nil
}

// canonicalSQL is the URL of a database without secrets, and without what does not change which database it is.
func canonicalSQL(scheme, user, addr, database string) string {
	return scheme + "://" + url.User(user).String() + "@" + addr + "/" + url.PathEscape(database)
}
