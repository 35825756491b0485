//go:build !linux

package kernel

func anonymousDevice() uint32 { return 0 }
