package backend

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A sqlURL is the URL of a database without its password. Only the parts without secrets go to
// the library that parses the rest, because libraries repeat their input in errors.
type sqlURL struct {
	urlKind // for its errors

	rest         string // the part after the scheme, without the password and the taken parameters
	password     string
	hasPassword  bool
	passwordFile string
	socket       string            // the path, if the host is one
	socketPort   string            // a part of the name of PostgreSQL's sockets
	taken        map[string]string // the parameters that the library does not know
}

// A sqlDialect says which parameters a library of a database knows.
type sqlDialect struct {
	scheme string
	// taken are parameters that the library does not know. A function returns an error for a
	// value that we can't serve; nil means any value.
	taken map[string]func(value string) error
	// check reports that the library can't use a parameter. What it does not know goes to the
	// server, as the value of a setting.
	check func(name, pair string) error
}

// sqlSyntax is the form of the URL of a database, after its scheme.
const sqlSyntax = "://USER:PASSWORD@HOST:PORT/DATABASE"

// split parses the part of a URL after the scheme and its colon. It refuses a password with a /
// or ? that is not encoded: a part of it would end up in other parts of the URL, which are shown.
func (d sqlDialect) split(rest string) (*sqlURL, error) {
	u := &sqlURL{urlKind: urlKind{scheme: d.scheme, syntax: d.scheme + sqlSyntax}, taken: map[string]string{}}
	userinfo, hosts, path, query, err := u.split(rest)
	if err != nil {
		return nil, err
	}
	var user string
	if user, u.password, err = u.login(userinfo); err != nil {
		return nil, err
	}
	if host, err := url.PathUnescape(hosts); err == nil && strings.HasPrefix(host, "/") { // as in libpq
		path, port, ok := cutLast(host, ":")
		if _, err := strconv.ParseUint(port, 10, 16); ok && err == nil {
			host, u.socketPort = path, port
		}
		hosts, u.socket = "", host
	}
	query, err = d.takeParameters(u, query)
	if err != nil {
		return nil, err
	}
	u.hasPassword = strings.Contains(userinfo, ":")
	if u.passwordFile != "" {
		if u.hasPassword {
			return nil, fmt.Errorf("%w URL: it has a password and a file for it; drop one of them", ErrConfig)
		}
		if u.password, err = u.currentPassword(); err != nil {
			return nil, err
		}
		u.hasPassword = true
	}
	u.rest = "//"
	if userinfo != "" {
		u.rest += url.User(user).String() + "@"
	}
	u.rest += hosts + "/" + path
	if query != "" {
		u.rest += "?" + query
	}
	return u, nil
}

// takeParameters returns the parameters that are for the library. It refuses the parameter
// password, which would not stay secret.
func (d sqlDialect) takeParameters(u *sqlURL, query string) (rest string, err error) {
	var others []string
	err = u.eachParameter(query, func(name, value, shown string) error {
		check, known := d.taken[name]
		switch pair := escape(name) + "=" + escape(value); {
		case name == "password":
			return u.errorf("a password does not belong behind the ?; write it before the host, or use password-file")
		case name == "password-file":
			u.passwordFile = value
		case known && check != nil && check(value) != nil:
			return fmt.Errorf("%w URL: %s: %w", ErrConfig, shown, check(value))
		case known:
			u.taken[name] = value
		default:
			if err := d.check(name, pair); err != nil {
				return fmt.Errorf("%w URL: %s: %w", ErrConfig, shown, err)
			}
			others = append(others, pair)
		}
		return nil
	})
	return strings.Join(others, "&"), err
}

// escape encodes a name or value of a parameter. A + is a space to some libraries and itself to
// others, so there is none.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// currentPassword returns the password. That of a file is read anew for each connection.
func (u *sqlURL) currentPassword() (string, error) { return readSecret(u.password, u.passwordFile) }

// errValue is the error for a value that a library does not accept. The library's repeats it.
var errValue = errors.New("its value can't be used")

// refuse returns a check of a parameter that no value makes right.
func refuse(why string) func(string) error {
	return func(string) error { return errors.New(why) }
}

// oneOf returns a check of a parameter that may have these values. why says what is wrong with
// others.
func oneOf(why string, values ...string) func(string) error {
	return func(value string) error {
		if slices.Contains(values, value) {
			return nil
		}
		return errors.New(why)
	}
}

// parameter returns a parameter of the URL that is for the library, or "".
func (u *sqlURL) parameter(name string) string {
	_, query, _ := strings.Cut(u.rest, "?")
	values, _ := url.ParseQuery(query) // the library that opens the database reports an error
	return values.Get(name)
}

// canonicalSQL returns the URL of a database, with only those parts that identify the database,
// and without secrets.
func canonicalSQL(scheme, user, addr, database string) string {
	if strings.HasPrefix(addr, "/") { // a socket
		path, port, hasPort := cutLast(addr, ":")
		addr = url.PathEscape(path)
		if hasPort {
			addr += ":" + port
		}
	}
	return scheme + "://" + url.User(user).String() + "@" + addr + "/" + url.PathEscape(database)
}
