package child

import (
	"os"

	"golang.org/x/sys/windows"
)

// IsTerminal reports whether f is a console.
func IsTerminal(f *os.File) bool {
	var mode uint32
	return withDescriptor(f, func(fd uintptr) error { return windows.GetConsoleMode(windows.Handle(fd), &mode) })
}

// knowsSequences reports whether f is a console that knows escape sequences, as those since
// Windows 10 do. It makes the console use them, which is not the default for a program.
func knowsSequences(f *os.File) bool {
	return withDescriptor(f, func(fd uintptr) error {
		var mode uint32
		if err := windows.GetConsoleMode(windows.Handle(fd), &mode); err != nil {
			return err
		}
		return windows.SetConsoleMode(windows.Handle(fd), mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING)
	})
}

// Width returns the number of columns that the window of the console f shows, or 0 if f is none.
func Width(f *os.File) int {
	window, ok := consoleWindow(f)
	if !ok {
		return 0
	}
	return int(window.Right-window.Left) + 1
}

// Height returns the number of lines that the window of the console f shows, or 0 if f is none.
func Height(f *os.File) int {
	window, ok := consoleWindow(f)
	if !ok {
		return 0
	}
	return int(window.Bottom-window.Top) + 1
}

func consoleWindow(f *os.File) (windows.SmallRect, bool) {
	var info windows.ConsoleScreenBufferInfo
	ok := withDescriptor(f,
		func(fd uintptr) error { return windows.GetConsoleScreenBufferInfo(windows.Handle(fd), &info) })
	return info.Window, ok
}
