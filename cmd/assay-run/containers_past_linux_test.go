package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/schema"
)

// A client that names the daemon itself makes containers outside of the run. The health
// says so, and only then.
func TestAClientThatNamesTheDaemonIsNamed(t *testing.T) {
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	e := enginetest.Docker(t)
	real := "unix://" + e.Socket
	for _, c := range []struct {
		name, script string
		want         bool
		flags        []string
	}{
		{"through the relay", `$E ps --quiet`, false, []string{"--containers"}},
		{"past the relay", `$E --host "$REAL" run --rm --network=none $IMAGE true`, true, []string{"--containers"}},
		{"without one", `$E ps --quiet`, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := withEngine(t, e, dir, c.script, append(c.flags, "--kernel", "require")...)
			cmd.Env = append(cmd.Env, "REAL="+real)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			docs, err := opened(t, dir).Documents(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(docs.Health.Reasons, func(r schema.Reason) bool { return r.Code == "engine_asked" })
			if (i >= 0) != c.want || i >= 0 &&
				!strings.Contains(docs.Health.Reasons[i].Message, filepath.Base(e.Socket)) {
				t.Errorf("reasons: %+v", docs.Health.Reasons)
			}
		})
	}
}
