package config

import (
	"testing"
	"time"
)

func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1024": 1024, "1K": 1024, "1.5m": 3 << 19, "2GiB": 2 << 30,
		"1tb": 1 << 40, " 7 B ": 7} {
		var got Bytes
		if err := got.Set(text); err != nil || int64(got) != want {
			t.Errorf("%q is %d bytes, want %d", text, got, want)
		}
	}
	for _, text := range []string{"", "K", "1X", "1e400", "9999999T", "nan", "1 2", "0.5", "-0.5"} {
		var got Bytes
		if err := got.Set(text); err == nil {
			t.Errorf("%q is %d bytes, want an error", text, got)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "0": 0} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"30":   `"30" has no unit: write 30s for seconds, or 30m for minutes`,
		"soon": `"soon" is not a time such as 90s, 10m or 1h30m`,
	} {
		if _, err := ParseDuration(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
