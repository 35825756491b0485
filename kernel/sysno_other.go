//go:build !linux || (!amd64 && !arm64)

package kernel

var sysNos, sysNos32 []sysNo
