//go:build !linux

package gateway

import (
	"sync"
	"time"
)

var began = sync.OnceValue(time.Now)

// BootTime is the time since it was first called: a [Config.Now] for serve.
func BootTime() time.Duration { return time.Since(began()) }
