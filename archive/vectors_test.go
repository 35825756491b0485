package archive

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/assay-run/assay-run/schema"
)

// TestVectors holds the committed bundles of SPEC.md against what is sealed
// today: a change of a single byte is a change of the format, or, for the
// packed ones alone, of the compression library.
func TestVectors(t *testing.T) {
	const dir = "testdata/vectors"
	spec, err := os.ReadFile("../schema/SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, filepath.Join(dir, "packed-level-5", "sample.tar.gz"))
	for _, name := range []string{"sample.tar", "sample.tar.gz", "sample.tar.zst"} {
		mustBeSound(t, filepath.Join(dir, "before-integrity", name))
		run := testRun(t)
		run.Capture = false // as the committed bundles have it
		sealed := sealRun(t, run, name, 3)
		got, err := os.ReadFile(sealed.Path)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name)
		if *update {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: sealing gives other bytes than the committed bundle has", name)
		}
		if r := mustBeSound(t, file); !strings.Contains(string(spec), r.Identity) {
			t.Errorf("%s: SPEC.md does not give the identity %s", name, r.Identity)
		}
	}
}

// TestAnEarlierBuildIsRead reads what the build of revision 9e96fcd left of real runs: a bundle, the spool of a
// killed recorder, and the spool of a run that ended, whose documents are in a journal.
func TestAnEarlierBuildIsRead(t *testing.T) {
	const dir = "testdata/vectors/build-9e96fcd"
	const identity = "sha256:8d4c882de2702b448e6cbca81f1cbe75cd1d4d6c50da1691c4a92b2095291309"
	if r := mustBeSound(t, filepath.Join(dir, "run.tar.gz")); r.Identity != identity {
		t.Errorf("the identity is %s, that build said %s", r.Identity, identity)
	}
	for spool, want := range map[string]struct {
		outcome string
		state   string
	}{
		"killed": {schema.OutcomeIncomplete, schema.Partial},
		"ended":  {schema.OutcomeExited, schema.Complete},
	} {
		files, err := txtar.ParseFile(filepath.Join(dir, spool+".txtar"))
		if err != nil {
			t.Fatal(err)
		}
		var run schema.Run
		parent, output := t.TempDir(), filepath.Join(t.TempDir(), spool+".tar.gz")
		for _, f := range files.Files {
			if f.Name == schema.RunPath {
				if err := json.Unmarshal(f.Data, &run); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := txtar.Write(files, filepath.Join(parent, run.RunID)); err != nil {
			t.Fatal(err)
		}
		if _, err := Recover(context.Background(), parent, run.RunID, RecoverOptions{Output: output}); err != nil {
			t.Fatalf("%s: %v", spool, err)
		}
		mustBeSound(t, output)
		d := documentsOf(t, output)
		if d.Result.Outcome != want.outcome || d.Health.KernelState != want.state {
			t.Errorf("%s: recovered as %s with the kernel layer %s, want %s and %s", spool, d.Result.Outcome,
				d.Health.KernelState, want.outcome, want.state)
		}
	}
}
