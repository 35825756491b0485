package runner

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestAHostWithoutWhatEveryRunNeedsIsNamed(t *testing.T) {
	mounted := t.TempDir()
	if err := os.Mkdir(filepath.Join(mounted, "self"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		goos, proc string
		want       error
	}{
		{"windows", mounted, ErrPlatform},
		{"darwin", t.TempDir(), ErrPlatform}, // before anything else is looked at
		{"linux", t.TempDir(), ErrNoProc},
		{"linux", mounted, nil},
	} {
		if err := checkHost(c.goos, c.proc); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s with %s: %v, want %v", c.goos, c.proc, err, c.want)
		}
	}
}
