package config

import "testing"

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
