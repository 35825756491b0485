package gateway

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootTime reads CLOCK_BOOTTIME, the runner's clock. It is the [Config.Now] of assay-run serve.
func BootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // Linux 2.6.39 and later have it
	}
	return time.Duration(ts.Nano())
}
