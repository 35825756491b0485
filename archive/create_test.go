package archive

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
)

func TestDefaultSpoolDir(t *testing.T) {
	u, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil || !filepath.IsAbs(u.HomeDir) {
		t.Fatalf("the password database does not tell this user's home: %+v, %v", u, err)
	}
	for name, c := range map[string]struct{ state, home, want string }{
		"the state directory":             {"/state", "/home/x", "/state/assay-run/spool"},
		"one that is relative is ignored": {"state", "/home/x", "/home/x/.local/state/assay-run/spool"},
		"the home directory":              {"", "/home/x", "/home/x/.local/state/assay-run/spool"},
		"nothing set":                     {"", "", filepath.Join(u.HomeDir, ".local/state/assay-run/spool")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_STATE_HOME", c.state)
			t.Setenv("HOME", c.home)
			if got, err := DefaultSpoolDir(); err != nil || got != c.want {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}
