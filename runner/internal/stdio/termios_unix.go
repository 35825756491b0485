//go:build unix

package stdio

import "golang.org/x/sys/unix"

// Termios are a terminal's settings.
type Termios = unix.Termios
