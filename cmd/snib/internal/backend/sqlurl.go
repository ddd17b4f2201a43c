package backend

import (
	"fmt"
	"net/url"
	"strings"
)

// A sqlURL is the URL of a database without its password. Only the parts without secrets go to
// the library that parses the rest, because libraries repeat their input in errors.
type sqlURL struct {
	urlKind // for its errors

	rest        string // the part after the scheme, without the password and password-file
	password    string
	hasPassword bool
	secretFiles []string // that contain the password or a key
}

// sqlSyntax is the form of the URL of a database, after its scheme.
const sqlSyntax = "://USER:PASSWORD@HOST:PORT/DATABASE"

// splitSQL parses the part of a URL after the scheme and its colon. It refuses a password with a /
// or ? that is not encoded: a part of it would end up in other parts of the URL, which are shown.
func splitSQL(scheme, rest string) (u sqlURL, err error) {
	u.urlKind = urlKind{scheme: scheme, syntax: scheme + sqlSyntax}
	userinfo, hosts, path, query, err := u.split(rest)
	if err != nil {
		return u, err
	}
	user, password, hasPassword := strings.Cut(userinfo, ":")
	var decodedUser string
	if decodedUser, err = url.PathUnescape(user); err == nil {
		u.password, err = url.PathUnescape(password)
	}
	if err != nil { // the errors repeat a part of the password
		return u, u.errorf("its user or password has a %% that does not begin the code of a character; write %% itself as %%25")
	}
	query, file, err := u.takeFile(query)
	switch {
	case err != nil:
		return u, err
	case file != "" && hasPassword:
		return u, fmt.Errorf("%w URL: it has a password and a file for it; drop one of them", ErrConfig)
	case file != "":
		if u.password, err = readSecret("", file); err != nil {
			return u, err
		}
		u.secretFiles = append(u.secretFiles, file)
	}
	u.hasPassword = hasPassword || file != ""
	u.rest = "//"
	if userinfo != "" {
		u.rest += url.User(decodedUser).String() + "@"
	}
	u.rest += hosts + "/" + path
	if query != "" {
		u.rest += "?" + query
	}
	return u, nil
}

// takeFile removes the parameter password-file from a query. It refuses the parameter password,
// which would not stay secret.
func (u sqlURL) takeFile(query string) (rest, file string, err error) {
	var others []string
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		switch name {
		case "":
		case "password":
			return "", "", u.errorf("a password does not belong behind the ?; write it before the host, or use password-file")
		case "password-file":
			if file, err = url.PathUnescape(value); err != nil || file == "" {
				return "", "", u.errorf("parameter password-file names no file")
			}
		default:
			others = append(others, pair)
		}
	}
	return strings.Join(others, "&"), file, nil
}

// parameter returns a parameter of the URL, or "".
func (u sqlURL) parameter(name string) string {
	_, query, _ := strings.Cut(u.rest, "?")
	values, _ := url.ParseQuery(query) // the library that opens the database reports an error
	return values.Get(name)
}

// canonicalSQL returns the URL of a database, with only those parts that identify the database,
// and without secrets.
func canonicalSQL(scheme, user, addr, database string) string {
	return scheme + "://" + url.User(user).String() + "@" + addr + "/" + url.PathEscape(database)
}
