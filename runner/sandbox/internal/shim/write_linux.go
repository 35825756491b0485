package shim

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Write puts a plan into a sealed file in memory, for the shim to read.
func Write(p Plan) (*os.File, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("sandbox plan: %w", err)
	}
	fd, err := unix.MemfdCreate("sandbox-plan", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("sandbox plan: %w", err)
	}
	f := os.NewFile(uintptr(fd), "sandbox plan")
	if _, err := f.Write(data); err != nil {
		f.Close()
		return nil, fmt.Errorf("sandbox plan: %w", err)
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("sandbox plan: %w", err)
	}
	return f, nil
}
