//go:build !linux

package steps

// Linked reports whether this program was linked with the entry point: there is none on this system.
func Linked() bool { return false }
