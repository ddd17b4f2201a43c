package backend

import (
	"os"
)

// stateFolder returns the folder for the state of the programs of this user: %LocalAppData%.
func stateFolder() (string, error) { return os.UserCacheDir() }

// checkStateFolder returns nil: the access list of the user's profile decides who may write there.
func checkStateFolder(string, os.FileInfo) error { return nil }
