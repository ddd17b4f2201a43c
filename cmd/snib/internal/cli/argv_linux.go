package cli

import (
	"strings"
	"unsafe"
)

// hide returns a copy of what this process was called with, and then overwrites the passwords in the URLs there, and owners, who can
// release locks: for as long as we run, ps shows everybody what is left. It may be called with a part of os.Args only.
func hide(args []string) []string {
	own := make([]string, len(args))
	for i, arg := range args {
		own[i] = strings.Clone(arg)
	}
	for i, arg := range args {
		if own[i] == "--" {
			break // what follows is the command's
		}
		secrets := passwords(own[i])
		if value, ok := strings.CutPrefix(own[i], ownerFlag+"="); ok {
			secrets = append(secrets, [2]int{len(arg) - len(value), len(arg)})
		} else if i > 0 && own[i-1] == ownerFlag {
			secrets = append(secrets, [2]int{0, len(arg)})
		}
		for _, at := range secrets {
			// On Linux the strings of os.Args lie where the kernel has put them, which is where ps looks.
			b := unsafe.Slice(unsafe.StringData(arg), len(arg))
			for j := at[0]; j < at[1]; j++ {
				b[j] = 'x'
			}
		}
	}
	return own
}

// ownerFlag is the flag whose value is the id of an owner.
const ownerFlag = "--owner"

// passwords finds those in an argument that is or has an URL, be it a good one or not: from where to where each goes.
func passwords(arg string) [][2]int {
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
