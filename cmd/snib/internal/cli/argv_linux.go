package cli

import (
	"strings"
	"unsafe"
)

// hideSecrets returns a copy of args, and overwrites in the original the passwords in URLs and
// the ids, because an id is enough to release a lock: ps shows the arguments to everybody
// while this process runs. args must be a part of os.Args.
func hideSecrets(args []string) []string {
	own := make([]string, len(args))
	for i, arg := range args {
		own[i] = strings.Clone(arg)
	}
	for i, arg := range args {
		if own[i] == "--" {
			break // the rest belongs to the command
		}
		secrets := findPasswords(own[i])
		if value, ok := strings.CutPrefix(own[i], idFlag+"="); ok {
			secrets = append(secrets, [2]int{len(arg) - len(value), len(arg)})
		} else if i > 0 && own[i-1] == idFlag {
			secrets = append(secrets, [2]int{0, len(arg)})
		}
		for _, at := range secrets {
			// On Linux the strings of os.Args are in the memory that the kernel set up, which
			// ps reads.
			b := unsafe.Slice(unsafe.StringData(arg), len(arg))
			for j := at[0]; j < at[1]; j++ {
				b[j] = 'x'
			}
		}
	}
	return own
}

// idFlag is the flag whose value is an id.
const idFlag = "--id"

// findPasswords returns the begin and the end of each password in an argument that is or
// contains a URL, valid or not.
func findPasswords(arg string) [][2]int {
	const parameter = "password="
	var all [][2]int
	_, rest, isURL := strings.Cut(arg, "://")
	if !isURL {
		return nil
	}
	begin := len(arg) - len(rest)
	if colon, at := strings.Index(rest, ":"), strings.LastIndex(rest, "@"); colon >= 0 && colon < at {
		all = append(all, [2]int{begin + colon + 1, begin + at})
	}
	for from := begin; ; {
		i := strings.Index(arg[from:], parameter)
		if i < 0 {
			return all
		}
		from += i + len(parameter)
		end := len(arg)
		if i := strings.Index(arg[from:], "&"); i >= 0 {
			end = from + i
		}
		all = append(all, [2]int{from, end})
	}
}
