package access

import "io/fs"

// checkMode reports nothing: on Windows a mode does not say who may read a file.
func checkMode(path, what string, mode fs.FileMode) error { return nil }
