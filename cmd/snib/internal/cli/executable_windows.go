package cli

// findsInCurrentFolder says that a command without a path is none of the current folder. Windows
// would look there first, so that whoever may write to that folder could replace any command.
const findsInCurrentFolder = false

// notExecutable follows the name of a file that can't be run.
const notExecutable = "is not executable; rename it, so that it ends as PATHEXT says?"
