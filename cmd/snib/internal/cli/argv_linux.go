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
		// On Linux the strings of os.Args are in the memory that the kernel set up, which ps reads.
		overwrite(unsafe.Slice(unsafe.StringData(arg), len(arg)), secrets)
	}
	return own
}

// idFlag is the flag whose value is an id.
const idFlag = "--id"
