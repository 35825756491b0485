package main

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/assay-run/assay-run/schema/config"
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

// texts is the value of a flag that may be repeated. pflag's own StringArray allocates 4 KiB for
// each such flag, even if it is not given.
type texts []string

func (t *texts) String() string { return strings.Join(*t, " ") }

func (*texts) Type() string { return "stringArray" }

func (t *texts) Set(s string) error {
	*t = append(*t, s)
	return nil
}

// again returns a function that sets a flag's variable back to the value that it has now.
func again(v pflag.Value) func() {
	if t, ok := v.(*texts); ok {
		now := slices.Clone(*t)
		return func() { *t = now }
	}
	if n, ok := v.(*named); ok {
		now := maps.Clone(*n)
		return func() { put((*map[string]string)(n), now) }
	}
	now := v.String()
	return func() { _ = v.Set(now) } // which worked before
}

// named is the value of a flag that takes NAME=VALUE and may be repeated.
type named map[string]string

func (named) String() string { return "" }

func (named) Type() string { return "NAME=VALUE" }

func (m *named) Set(kv string) error {
	k, v, ok := strings.Cut(kv, "=")
	if !ok || k == "" || v == "" {
		return fmt.Errorf("%q is not of the form NAME=VALUE", kv)
	}
	put((*map[string]string)(m), map[string]string{k: v})
	return nil
}

// list is the value of a flag that takes words, separated by commas.
type list struct {
	to  *[]string
	set bool // by this flag, and not only by a spec file
}

func (l *list) String() string {
	if l.to == nil {
		return ""
	}
	return strings.Join(*l.to, ",")
}

func (*list) Type() string { return "WORDS" }

func (l *list) Set(s string) error {
	if !l.set {
		*l.to, l.set = nil, true
	}
	if s != "" {
		*l.to = append(*l.to, strings.Split(s, ",")...)
	}
	return nil
}

// boolFlag registers a flag that needs no value.
func boolFlag(fs *pflag.FlagSet, v pflag.Value, name, usage string) {
	fs.VarPF(v, name, "", usage).NoOptDefVal = "true"
}

// negated is the value of a flag that switches a field off.
type negated bool

func (n *negated) String() string { return strconv.FormatBool(!bool(*n)) }

func (*negated) Type() string { return "bool" }

func (n *negated) Set(s string) error {
	v, err := strconv.ParseBool(s)
	*n = negated(!v)
	return err
}

// someBytes is a size of at least one byte. Zero means that the flag was not given.
type someBytes config.Bytes

func (n *someBytes) String() string { return (*config.Bytes)(n).String() }

func (*someBytes) Type() string { return config.Bytes(0).Type() }

func (n *someBytes) Set(s string) error {
	err := (*config.Bytes)(n).Set(s)
	if err == nil && *n < 1 {
		err = errors.New("must be at least 1 byte")
	}
	return err
}

// duration is the value of a flag that takes a time.
type duration time.Duration

func (d *duration) String() string { return time.Duration(*d).String() }

func (*duration) Type() string { return "duration" }

func (d *duration) Set(s string) error {
	v, err := config.ParseDuration(s)
	if err == nil {
		*d = duration(v)
	}
	return err
}

// durationFlag registers a flag that takes a time, with a default.
func durationFlag(fs *pflag.FlagSet, to *time.Duration, name string, usual time.Duration, usage string) {
	*to = usual
	fs.Var((*duration)(to), name, usage)
}

// positive is a number of at least one. Zero means that the flag was not given, and that there is
// no limit.
type positive int64

func (n *positive) String() string { return strconv.FormatInt(int64(*n), 10) }

func (*positive) Type() string { return "N" }

func (n *positive) Set(s string) error {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", s)
	}
	if v < 1 {
		return fmt.Errorf("%d is not a limit: give 1 or more, or omit the flag for no limit", v)
	}
	*n = positive(v)
	return nil
}

// put sets the keys of from in *into.
func put(into *map[string]string, from map[string]string) {
	if *into == nil && len(from) > 0 {
		*into = map[string]string{}
	}
	maps.Copy(*into, from)
}

// keyValues is the value of a flag that takes K=V and may be repeated.
type keyValues map[string]string

func (keyValues) String() string { return "" }

func (keyValues) Type() string { return "K=V" }

func (m *keyValues) Set(kv string) error {
	k, v, ok := strings.Cut(kv, "=")
	if !ok || k == "" {
		return fmt.Errorf("%q is not of the form K=V", kv)
	}
	put((*map[string]string)(m), map[string]string{k: v})
	return nil
}

func (m keyValues) overlay(into *map[string]string) { put(into, m) }

// environment holds the variables of --env and of --env-file. If both set a variable, --env wins.
type environment struct{ given, files keyValues }

func (environment) String() string { return "" }

func (environment) Type() string { return "K=V" }

// Set takes K=V, or K to pass on a variable of assay-run's own environment. A variable that is not
// set there stays unset, as with docker run.
func (e *environment) Set(kv string) error {
	if !strings.Contains(kv, "=") {
		v, ok := os.LookupEnv(kv)
		if !ok {
			return nil
		}
		kv += "=" + v
	}
	k, v, _ := strings.Cut(kv, "=") // Spec.Validate checks the key
	put((*map[string]string)(&e.given), map[string]string{k: v})
	return nil
}

func (e *environment) overlay(into *map[string]string) {
	put(into, e.files)
	put(into, e.given)
}

// environmentFiles is the value of --env-file.
type environmentFiles environment

func (*environmentFiles) String() string { return "" }

func (*environmentFiles) Type() string { return "FILE" }

// Set reads K=V lines. It skips empty lines and lines that begin with #, and neither unquotes nor
// expands anything. Its errors never quote a value.
func (e *environmentFiles) Set(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if !ok || k == "" {
			return fmt.Errorf("%s:%d: not of the form K=V", path, n)
		}
		put((*map[string]string)(&e.files), map[string]string{k: v})
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
