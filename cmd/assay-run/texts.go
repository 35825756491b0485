package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// texts is the value of a flag that may be repeated. Pflag's own takes 4 KiB for each
// such flag, whether it is given or not.
type texts []string

func (t *texts) String() string { return strings.Join(*t, " ") }
func (*texts) Type() string     { return "stringArray" }

func (t *texts) Set(s string) error {
	*t = append(*t, s)
	return nil
}

// again returns what sets a flag's variable to what it is now.
func again(v pflag.Value) func() {
	if t, ok := v.(*texts); ok {
		now := slices.Clone(*t)
		return func() { *t = now }
	}
	now := v.String()
	return func() { _ = v.Set(now) } // which worked before
}
