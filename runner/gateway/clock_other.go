//go:build !linux

package gateway

import (
	"sync"
	"time"
)

var began = sync.OnceValue(time.Now)

// BootTime is the time since its first call. It is the [Config.Now] of assay-run serve.
func BootTime() time.Duration { return time.Since(began()) }
