package runner

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
)

// What CheckHost finds.
var (
	// ErrPlatform is also what Run returns where runs cannot be contained.
	ErrPlatform = errors.New("assay-run runs commands on Linux only; verify, inspect, events and recover work here")
	ErrNoProc   = errors.New("/proc is not mounted here, and every run needs it")
)

// CheckHost returns why no run is possible here, whatever the run is: ErrPlatform,
// ErrNoProc or nil. Diagnose tells more, and takes longer.
func CheckHost() error { return checkHost(runtime.GOOS, "/proc") }

func checkHost(goos, proc string) error {
	if goos != "linux" {
		return ErrPlatform
	}
	if _, err := os.Stat(filepath.Join(proc, "self")); errors.Is(err, os.ErrNotExist) {
		return ErrNoProc
	}
	return nil
}
