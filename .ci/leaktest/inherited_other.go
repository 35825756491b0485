//go:build !linux

package leaktest

func keepInherited() {}
