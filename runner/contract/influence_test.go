package contract

import "testing"

func TestInfluenceKind(t *testing.T) {
	for path, want := range map[string]string{
		"/w/src/main.go":                    "source",
		"/w/.npmrc":                         "configuration",
		"/w/lib/sitecustomize.py":           "configuration",
		"/w/__pycache__/a.cpython-311.pyc":  "cache",
		"/w/a.pyc":                          "cache",
		"/home/u/.config/go/env":            "configuration",
		"/home/u/.cache/go-build/ab/abcd-d": "cache",
		"/home/u/.local/lib/x.py":           "configuration",
		"/etc/ld.so.preload":                "configuration",
		"/tmp/x":                            "other",
		"/wider/x":                          "other",
	} {
		if got := InfluenceKind(path, "/w", "/home/u"); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
