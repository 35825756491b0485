package config

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
)

// Bytes is a size in bytes. Spec files and flags write it as a number, or with a binary suffix: K, M, G, T, also as
// KiB, KB, Kb; all mean powers of 1024.
type Bytes int64

// String is the size in the largest unit that needs no fraction, such as 64MiB.
func (n Bytes) String() string {
	unit := 0
	for n != 0 && n%1024 == 0 && unit < 4 {
		n, unit = n/1024, unit+1
	}
	return strconv.FormatInt(int64(n), 10) + [...]string{"", "KiB", "MiB", "GiB", "TiB"}[unit]
}

// Set implements pflag.Value.
func (n *Bytes) Set(s string) (err error) {
	v, err := parseBytes(s)
	*n = Bytes(v)
	return err
}

func (Bytes) Type() string { return "SIZE" }

// UnmarshalJSON accepts a number of bytes or a string.
func (n *Bytes) UnmarshalJSON(b []byte) error { return n.Set(unquoted(b)) }

// MarshalJSON writes the result of String.
func (n Bytes) MarshalJSON() ([]byte, error) { return strconv.AppendQuote(nil, n.String()), nil }

// MilliCPUs is a CPU bandwidth in thousandths of one CPU. Spec files and flags
// write it as a number of CPUs, such as 1.5.
type MilliCPUs int64

func (n MilliCPUs) String() string { return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64) }

// Set implements pflag.Value.
func (n *MilliCPUs) Set(s string) (err error) {
	v, err := parseCPUs(s)
	*n = MilliCPUs(v)
	return err
}

func (MilliCPUs) Type() string { return "N" }

// UnmarshalJSON accepts a number of CPUs or a string.
func (n *MilliCPUs) UnmarshalJSON(b []byte) error { return n.Set(unquoted(b)) }

// MarshalJSON writes a number of CPUs.
func (n MilliCPUs) MarshalJSON() ([]byte, error) { return []byte(n.String()), nil }

// ParseDuration reads a duration in the form 90s or 1h30m, which flags and files share.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return d, durationError(s)
	}
	return d, nil
}

// durationError is a text that is not a duration.
type durationError string

func (e durationError) Error() string {
	if _, err := strconv.ParseFloat(string(e), 64); err == nil {
		return fmt.Sprintf("%q has no unit: write %ss for seconds, or %sm for minutes", string(e), string(e), string(e))
	}
	return fmt.Sprintf("%q is not a time such as 90s, 10m or 1h30m", string(e))
}

// CheckGlob returns an error for a glob that cannot be used.
func CheckGlob(glob string) error {
	if !doublestar.ValidatePattern(glob) {
		return fmt.Errorf("%.80q is not a valid glob", glob)
	}
	return nil
}

func unquoted(b []byte) string { return string(bytes.Trim(b, `"`)) }

// parseBytes drops a fraction of a byte. A size below one byte is an error.
func parseBytes(s string) (int64, error) {
	t := strings.TrimSpace(s)
	digits := strings.TrimRight(t, "KMGTiBbkmgt")
	suffix := strings.ToLower(strings.TrimSpace(t[len(digits):]))
	shift, ok := map[string]uint{
		"": 0, "b": 0,
		"k": 10, "kb": 10, "kib": 10,
		"m": 20, "mb": 20, "mib": 20,
		"g": 30, "gb": 30, "gib": 30,
		"t": 40, "tb": 40, "tib": 40,
	}[suffix]
	n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if !ok || err != nil || math.IsNaN(n) {
		return 0, fmt.Errorf("size %q is not a number of bytes such as 1048576, 512M or 2GiB", s)
	}
	n *= float64(int64(1) << shift)
	if math.Abs(n) >= math.MaxInt64 {
		return 0, fmt.Errorf("size %q is too large", s)
	}
	if n != 0 && int64(n) == 0 {
		return 0, fmt.Errorf("size %q is less than a byte", s)
	}
	return int64(n), nil
}

// parseCPUs reads a CPU bandwidth such as 1.5 in thousandths of a CPU. A value below 0.01 other than zero is an
// error.
func parseCPUs(s string) (int64, error) {
	n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsNaN(n) || math.Abs(n) > 1e6 {
		return 0, fmt.Errorf("cpus %q is not a number of CPUs such as 0.5 or 2", s)
	}
	if n != 0 && math.Abs(n) < 0.01 {
		return 0, fmt.Errorf("cpus %q is below the kernel's minimum of 0.01", s)
	}
	return int64(math.Round(n * 1000)), nil
}
