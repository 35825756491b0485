package runner

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseBytes reads a size: a number of bytes, or one with a binary suffix
// (K, M, G, T, each also as KiB, KB, Kb: all mean 1024). A fraction of a byte is
// cut off, and alone is an error.
func ParseBytes(s string) (int64, error) {
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

// ParseCPUs reads a CPU bandwidth such as 1.5 into thousandths of one CPU. Less
// than 0.01 that is not zero is an error.
func ParseCPUs(s string) (int64, error) {
	n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsNaN(n) || math.Abs(n) > 1e6 {
		return 0, fmt.Errorf("cpus %q is not a number of CPUs such as 0.5 or 2", s)
	}
	if n != 0 && math.Abs(n) < 0.01 {
		return 0, fmt.Errorf("cpus %q is below the kernel's minimum of 0.01", s)
	}
	return int64(math.Round(n * 1000)), nil
}
