//go:build !linux

package leaktest

func keepInherited() {}

func (c *checked) outputs() []string { return nil }

func nonblocking() map[int]bool { return nil }
