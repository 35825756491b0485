package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// faults are the invalid values of flags. They are kept until all flags have been
// read, so that the user sees all of them at once.
type faults []error

func (f faults) err() error { return errors.Join(f...) }

// gather makes the flags of a set report invalid values to f.
func (f *faults) gather(fs *pflag.FlagSet) {
	fs.VisitAll(func(flag *pflag.Flag) {
		if flag.DefValue == "0s" || flag.DefValue == "[]" {
			flag.DefValue = "" // not worth showing in the help
		}
		flag.Value = lenient{flag.Value, flag.Name, f}
	})
}

// lenient is a flag's value that accepts any text and records what is wrong with it.
type lenient struct {
	pflag.Value
	name   string
	faults *faults
}

func (l lenient) Set(s string) error {
	if err := l.Value.Set(s); err != nil {
		*l.faults = append(*l.faults, fmt.Errorf("--%s: %w", l.name, err))
	}
	return nil
}
