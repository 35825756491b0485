package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// TestPrivateTmp keeps everything that a run needs, or names, below its own /tmp.
func TestPrivateTmp(t *testing.T) {
	for _, w := range everybody[:2] {
		for _, c := range []struct {
			name, script string
			inTmp        bool // the working directory is below /tmp
			settings     func(s *sandboxfile.Settings, top string)
		}{
			{"TMPDIR is an empty directory",
				`[ -z "$(ls -A "$TMPDIR")" ] && rm "$(mktemp -p "$TMPDIR")" && [ "$(ls -A "$TOP")" = tmpdir ]`, false,
				nil},
			{"the working directory below it stays",
				`cat here && touch new && [ -z "$(ls -A "$TMPDIR")" ] && ! ls "$TOP/other" && ! cat "$TOP/secret"`,
				true, nil},
			{"so it does where nothing may be written",
				`cat here && ! touch new && ! touch /tmp/new && ! cat "$TOP/secret"`, true,
				func(s *sandboxfile.Settings, top string) {
					s.Mode = sandboxfile.ReadOnly
				}},
			{"what a policy names stays", `cat "$TOP/other/f" && touch "$TOP/other/g" && ! cat "$TOP/secret"`, false,
				func(s *sandboxfile.Settings, top string) {
					s.Filesystem.AllowWrite = []string{top + "/other"}
				}},
			{"what cannot be read is not there", `! cat "$TOP/other/f" && ! cat "$TOP/secret"`, false,
				func(s *sandboxfile.Settings, top string) {
					s.Filesystem.DenyRead = []string{top + "/other"}
				}},
			{"an exception in the working directory holds", `! cat sub/f && cat here`, true,
				func(s *sandboxfile.Settings, top string) {
					s.Filesystem.DenyRead = []string{"sub"}
				}},
		} {
			t.Run(w.name+"/"+c.name, func(t *testing.T) {
				j := shell(t, c.script)
				top, err := os.MkdirTemp("/tmp", "sandbox-test-")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { os.RemoveAll(top) })
				if c.inTmp {
					j.Dir = filepath.Join(top, "work")
				}
				for _, dir := range []string{top + "/tmpdir", top + "/other", j.Dir + "/sub"} {
					if err := os.MkdirAll(dir, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				for _, f := range []string{top + "/secret", top + "/tmpdir/f", top + "/other/f", j.Dir + "/here",
					j.Dir + "/sub/f"} {
					if err := os.WriteFile(f, nil, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				chown(t, top, w.uid)
				if err := os.Chmod(top, 0o755); err != nil {
					t.Fatal(err)
				}
				j.Env = []string{"TOP=" + top, "TMPDIR=" + top + "/tmpdir"}
				j.Protect = []string{top + "/secret"} // as the policy's file is
				j.Evidence = []string{top + "/other"}
				if c.settings != nil || c.inTmp {
					j.Evidence = nil
				}
				j.Settings.Filesystem = &sandboxfile.Filesystem{PrivateTmp: true}
				if c.settings != nil {
					c.settings(&j.Settings, top)
				}
				if o := w.run(t, j); o.Err != "" || o.Code != 0 {
					t.Errorf("%+v\n%s", o, o.out)
				}
			})
		}
	}
	j := shell(t, "true")
	j.Dir = "/tmp"
	j.Settings.Filesystem = &sandboxfile.Filesystem{PrivateTmp: true}
	if o := everybody[0].run(t, j); !strings.Contains(o.Err, "the working directory is /tmp") {
		t.Errorf("/tmp is private and the working directory: %+v", o)
	}
}
