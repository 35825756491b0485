//go:build !linux

package leaktest

func runs() map[string]bool { return nil }

func (c *checked) cgroups() []string { return nil }
