//go:build unix

package cli

// findsInCurrentFolder says that a command without a path may be one of the current folder: "." is
// in PATH on purpose.
const findsInCurrentFolder = true

// notExecutable follows the name of a file that can't be run.
const notExecutable = "is not executable; chmod +x it?"
