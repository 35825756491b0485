package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// overwrite changes bytes of a file without changing its length.
func overwrite(t *testing.T, name, old, new string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(b), old)
	if at < 0 || len(old) != len(new) {
		t.Fatalf("%s has no %q", name, old)
	}
	if _, err := f.WriteAt([]byte(new), int64(at)); err != nil {
		t.Fatal(err)
	}
}

// Whoever can write the spool of a live run can change what is sealed, but not
// without being told of.
func TestAChangedSpoolIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		attack func(t *testing.T, dir string)
		want   []string
		sound  bool // verify has nothing against the bundle: it holds what was written
		code   Code
	}{
		"a line of the policy layer": {func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, schema.PolicyPath), `"allow"`, `"alloy"`)
		}, []string{"layers/policy.ndjson was changed after it was written, at byte 0"}, false, CodeIntegrity},
		"what the command wrote": {func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, schema.StdoutPath), "hello", "HELLO")
		}, []string{"stdio/stdout was changed after it was written, at byte 0"}, false, CodeIntegrity},
		"the end of a layer cut off": {func(t *testing.T, dir string) {
			name := filepath.Join(dir, schema.KernelPath)
			b, _ := os.ReadFile(name)
			cut := strings.Index(string(b), "\n") + 1
			if err := os.Truncate(name, int64(cut)); err != nil {
				t.Fatal(err)
			}
		}, []string{"layers/kernel.ndjson was changed after it was written, at byte 0"}, false, CodeIntegrity},
		"a layer replaced": {func(t *testing.T, dir string) {
			name := filepath.Join(dir, schema.KernelPath)
			if err := errors.Join(os.Remove(name), os.WriteFile(name, []byte("{}\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}, []string{"layers/kernel.ndjson was deleted or replaced"}, true, ""},
		"a planted member": {func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "stdio", "stderr"), []byte("ok"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, []string{`the spool has a file "stdio/stderr" that the recorder did not make`}, true, ""},
		"the result": {func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, schema.ResultPath), `"exit_code": 0`, `"exit_code": 7`)
		}, nil, true, ""}, // it is sealed from memory
		"a planted document": {func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, schema.ContractPath), []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, []string{`the spool has a file "contract.json" that the recorder did not make`}, true, ""},
		"the whole spool deleted": {func(t *testing.T, dir string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}, []string{"the spool was deleted"}, true, ""},
		"all spools deleted": {func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
				t.Fatal(err)
			}
		}, []string{"the spool was deleted"}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			run := testRun(t)
			s, _ := newSpool(t, run)
			record(t, s, 3)
			c.attack(t, s.Dir())
			sealed, err := s.Seal(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			told(t, sealed, c.want)
			r := verified(t, sealed.Path)
			if c.sound != r.OK() {
				t.Errorf("problems %v", r.Problems)
			}
			for _, p := range r.Problems {
				if p.Code == c.code {
					return
				}
			}
			if !c.sound {
				t.Errorf("%s is missing in %v", c.code, r.Problems)
			}
		})
	}
}

// told checks that what was found is returned, and stands in the bundle.
func told(t *testing.T, sealed Sealed, want []string) {
	t.Helper()
	if len(sealed.Tampered) != len(want) {
		t.Fatalf("found %v, want %q", sealed.Tampered, want)
	}
	d := documentsOf(t, sealed.Path)
	var reasons []string
	for _, r := range d.Health.Reasons {
		if r.Code == CodeTampered {
			reasons = append(reasons, r.Message)
		}
	}
	for i, w := range want {
		if got := sealed.Tampered[i].String(); !strings.HasPrefix(got, w) || !cmp.Equal(got, reasons[i]) {
			t.Errorf("found %q, health has %q, want %q", got, reasons[i], w)
		}
	}
	code := d.Result.RunnerExitCode
	if tampered := len(want) > 0; (code != nil && *code == exitTampered) != (tampered && code != nil) ||
		tampered != (d.Result.Error != nil && d.Result.Error.Code == CodeTampered) {
		t.Errorf("the result has %v, %+v", code, d.Result.Error)
	}
}

// A member can be made at any moment while somebody deletes the spool.
func TestMembersAreMadeWhileTheSpoolIsDeleted(t *testing.T) {
	s, _ := newSpool(t, testRun(t))
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.RemoveAll(filepath.Dir(s.Dir()))
				_ = os.MkdirAll(s.Dir(), 0o700)
			}
		}
	}()
	for i := range 1000 {
		path := fmt.Sprintf("checks/%d/output", i)
		w, err := s.Create(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			break
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-stopped
}

// A folder of the spool that somebody makes or removes between two of the recorder's calls is like
// a link to nothing: it is not there, and cannot be made.
func TestALayerWhoseFolderCannotBeMade(t *testing.T) {
	s, _ := newSpool(t, testRun(t))
	if err := os.Symlink("nowhere", filepath.Join(s.Dir(), "layers")); err != nil {
		t.Skip(err) // Windows asks for a privilege
	}
	record(t, s, 3)
	sealed, err := s.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(sealed.Tampered) == 0 {
		t.Error("nothing is said of the link")
	}
	if r := mustBeSound(t, sealed.Path); r.Lines[schema.KernelPath] != 3 {
		t.Errorf("%v", r.Lines)
	}
}

// What is written after the spool was deleted is sealed as well.
func TestWritingGoesOnWithoutTheSpool(t *testing.T) {
	run := testRun(t)
	s, _ := newSpool(t, run)
	if err := os.RemoveAll(s.Dir()); err != nil {
		t.Fatal(err)
	}
	record(t, s, 3)
	sealed, err := s.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	told(t, sealed, []string{"the spool was deleted"})
	r := mustBeSound(t, sealed.Path)
	if r.Lines[schema.KernelPath] != 3 || r.Lines[schema.EventsPath] != 2 {
		t.Errorf("%v", r.Lines)
	}
}

// A file in the place of a layer, before its first line, is none of the evidence.
func TestAPlantedLayerIsRemoved(t *testing.T) {
	run := testRun(t)
	s, _ := newSpool(t, run)
	if err := errors.Join(os.Mkdir(filepath.Join(s.Dir(), "layers"), 0o700),
		os.WriteFile(filepath.Join(s.Dir(), schema.KernelPath), []byte("{}\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	record(t, s, 3)
	sealed, err := s.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	told(t, sealed, []string{"layers/kernel.ndjson was there before the recorder wrote it"})
	mustBeSound(t, sealed.Path)
}

// A checkpoint tells where a spool was changed after the recorder had died.
func TestRecoveryComparesWithCheckpoints(t *testing.T) {
	for name, c := range map[string]struct {
		attack func(t *testing.T, dir string)
		want   []string
	}{
		"nothing": {func(*testing.T, string) {}, nil},
		"a line": {func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, schema.KernelPath), `"pid":4000`, `"pid":4001`)
		}, []string{"layers/kernel.ndjson was changed between line 1 and line 3"}},
		"lines cut off": {func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, schema.KernelPath), 0); err != nil {
				t.Fatal(err)
			}
		}, []string{"layers/kernel.ndjson has 0 lines, and 3 had been written"}},
		"the lifecycle": {func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, schema.EventsPath), `"agent_shim":"none"`, `"agent_shim":"nine"`)
		}, []string{"events.ndjson was changed between line 1 and line 2"}},
		"a stream": {func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, schema.StdoutPath), "hello", "HELLO")
		}, []string{"stdio/stdout was changed between byte 0 and byte 6"}},
		"no stream": {func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, schema.StdoutPath))
		}, []string{"stdio/stdout has 0 bytes, and 6 had been written"}},
		"planted members": {func(t *testing.T, dir string) {
			for _, p := range []string{"checks/x/output", "layers/evil.ndjson", "notes.json"} {
				name := filepath.Join(dir, filepath.FromSlash(p))
				if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700),
					os.WriteFile(name, []byte("ok"), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
		}, []string{
			`the spool has a file "checks/x/output" that the recorder did not make`,
			`the spool has a file "layers/evil.ndjson" that the recorder did not make`,
			`the spool has a file "notes.json" that the recorder did not make`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			run := testRun(t)
			s, dir := newSpool(t, run)
			points := make(chan schema.Checkpoint, 1)
			s.OnCheckpoint(func(c schema.Checkpoint) {
				select {
				case points <- c:
				default:
				}
			})
			record(t, s, 3)
			point := <-points
			line, err := schema.Line(schema.Event{Schema: schema.EventV0, RunID: run.RunID, Seq: 2,
				Type: schema.CheckpointMade, Checkpoint: &point})
			if err != nil {
				t.Fatal(err)
			}
			// The sample's run has ended; its last line makes place for the checkpoint.
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			events := filepath.Join(s.Dir(), schema.EventsPath)
			b, err := os.ReadFile(events)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(events, append(b, line...), 0o600); err != nil {
				t.Fatal(err)
			}
			c.attack(t, s.Dir())
			sealed, err := Recover(context.Background(), dir, run.RunID, RecoverOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(sealed.Tampered) != len(c.want) {
				t.Fatalf("found %v", sealed.Tampered)
			}
			for i, w := range c.want {
				if got := sealed.Tampered[i].String(); !strings.HasPrefix(got, w) {
					t.Errorf("found %q, want %q", got, w)
				}
			}
		})
	}
}

// Of a spool whose recorder died, only what a checkpoint covers and has no other name is believed.
func TestRecoveryBelievesWhatCheckpointsCover(t *testing.T) {
	link := func(path string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Link(filepath.Join(dir, path), filepath.Join(filepath.Dir(dir), ".second")); err != nil {
				t.Fatal(err)
			}
		}
	}
	const second = " has a second name elsewhere (a hard link)"
	for name, c := range map[string]struct {
		attack  func(t *testing.T, dir string)
		planted bool // the output that the run named is not believed
		want    []string
	}{
		"nothing": {func(*testing.T, string) {}, false, nil},
		"run.json": {func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, schema.RunPath), ".tar.gz", "-tar.gz")
		}, true, []string{"run.json was changed after the run began"}},
		"run.json by a link": {link(schema.RunPath), true, []string{"run.json" + second}},
		"a stream by a link": {link(schema.StdoutPath), false, []string{
			"stdio/stdout has 0 bytes", "stdio/stdout" + second,
		}},
		"a layer by a link": {link(schema.PolicyPath), false, []string{
			"layers/policy.ndjson has 0 lines", "layers/policy.ndjson" + second,
		}},
		"the end by a link":   {link(schema.ResultPath), false, []string{schema.ResultPath + second}},
		"the turns by a link": {link(schema.TurnsPath), false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			run := testRun(t)
			s, dir := newSpool(t, run)
			if err := s.Begin(schema.TurnsPath); err != nil {
				t.Fatal(err)
			}
			points := make(chan schema.Checkpoint, 1)
			s.OnCheckpoint(func(c schema.Checkpoint) {
				select {
				case points <- c:
				default:
				}
			})
			record(t, s, 3)
			point := <-points
			appendEvent(t, s, schema.Event{Type: schema.CheckpointMade, Checkpoint: &point})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			c.attack(t, s.Dir())
			sealed, err := Recover(context.Background(), dir, run.RunID, RecoverOptions{})
			if errors.Is(err, ErrPlanted) != c.planted || err != nil && !c.planted {
				t.Fatalf("without an output: %v", err)
			}
			if c.planted {
				elsewhere := filepath.Join(t.TempDir(), "b.tar.gz")
				opt := RecoverOptions{Output: elsewhere}
				if sealed, err = Recover(context.Background(), dir, run.RunID, opt); err != nil {
					t.Fatal(err)
				}
			}
			if len(sealed.Tampered) != len(c.want) || sealed.Unchecked {
				t.Fatalf("found %q, unchecked %t", sealed.Tampered, sealed.Unchecked)
			}
			for i, w := range c.want {
				if got := sealed.Tampered[i].String(); !strings.HasPrefix(got, w) {
					t.Errorf("found %q, want %q", got, w)
				}
			}
		})
	}
}

// A command can make a whole spool, with a checkpoint, where recover looks: no file is replaced for it.
func TestAFoundSpoolReplacesNothing(t *testing.T) {
	for _, name := range []string{"precious.tar.gz", "precious.md"} {
		t.Run(name, func(t *testing.T) {
			run, at := testRun(t), t.TempDir()
			run.Output, run.ResultOutput = filepath.Join(at, name), filepath.Join(at, "result")
			for _, file := range []string{run.Output, run.ResultOutput} {
				if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s, dir := newSpool(t, run)
			points := make(chan schema.Checkpoint, 1)
			s.OnCheckpoint(func(c schema.Checkpoint) {
				select {
				case points <- c:
				default:
				}
			})
			record(t, s, 3)
			point := <-points
			appendEvent(t, s, schema.Event{Type: schema.CheckpointMade, Checkpoint: &point})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			sealed, err := Recover(context.Background(), dir, run.RunID, RecoverOptions{Found: true})
			if err == nil && (sealed.Path == run.Output || sealed.ResultOutput != "") {
				t.Errorf("sealed as %s, and the result as %q", sealed.Path, sealed.ResultOutput)
			}
			for _, file := range []string{run.Output, run.ResultOutput} {
				if b, _ := os.ReadFile(file); string(b) != "mine" {
					t.Errorf("%s was replaced", file)
				}
			}
			elsewhere := filepath.Join(t.TempDir(), "b.tar.gz")
			opt := RecoverOptions{Found: true, Output: elsewhere}
			if _, err := Recover(context.Background(), dir, run.RunID, opt); err != nil {
				t.Errorf("to an output that the user names: %v", err)
			}
		})
	}
}

// plant makes members in a spool whose recorder has died, and returns what recovery says
// of them.
func plant(t *testing.T, run schema.Run, before func(*Spool), paths ...string) (found []string) {
	t.Helper()
	s, dir := newSpool(t, run)
	before(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		name := filepath.Join(s.Dir(), filepath.FromSlash(p))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700),
			os.WriteFile(name, []byte("PASS\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	sealed, err := Recover(context.Background(), dir, run.RunID, RecoverOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if run.Contract == "" { // the sample's contract.json is not a whole one
		mustBeSound(t, sealed.Path)
	}
	for _, f := range sealed.Tampered {
		found = append(found, f.String())
	}
	return found
}

// A member that another run could have is planted where this one made none: a stream
// without capture, and the output of a check that was not started.
func TestMembersThatThisRunCannotHaveArePlanted(t *testing.T) {
	shim, ms := "none", int64(0)
	begin := func(s *Spool) {
		appendEvent(t, s, schema.Event{Type: schema.RunStarted, AgentShim: &shim, Command: []string{"/bin/true"},
			EnvKeys: []string{}, WindowElapsedMS: &ms})
	}
	silent := testRun(t)
	silent.Capture = false
	want := []string{
		`the spool has a file "stdio/stdout" that the recorder did not make; it is not in the bundle`,
		`the spool has a file "stdio/terminal.cast" that the recorder did not make; it is not in the bundle`,
	}
	got := plant(t, silent, begin, schema.StdoutPath, schema.TerminalPath)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("without capture (-want +got):\n%s", diff)
	}

	checking := testRun(t)
	checking.Contract = "/c.yaml"
	late, early := schema.CheckOutputPath("late"), schema.CheckOutputPath("early")
	got = plant(t, checking, func(s *Spool) {
		begin(s)
		doc := schema.Contract{
			Schema: schema.ContractV0, RunID: checking.RunID, Digest: "sha256:" + strings.Repeat("0", 64),
			FileAfter: "unknown",
			Verdict:   schema.VerdictInconclusive, Reasons: []string{"the runner ended"},
			ProtectedChanges: []schema.ProtectedChange{},
		}
		doc.Contract.Protected = []string{}
		for _, name := range []string{"early", "late"} {
			doc.Contract.Checks = append(doc.Contract.Checks,
				schema.Check{Name: name, Command: "make " + name, ExpectExitZero: true, TimeoutSecs: 120})
			doc.Results = append(doc.Results, schema.CheckResult{Name: name, Rerun: "make " + name})
		}
		data, err := schema.Document(doc)
		if err == nil {
			err = errors.Join(schema.Validate(schema.ContractV0, data), s.Put(schema.ContractPath, data))
		}
		if err != nil {
			t.Fatal(err)
		}
		appendEvent(t, s, schema.Event{Type: schema.CheckStarted, Check: "early", Phase: "final"})
	}, early, late)
	if diff := cmp.Diff([]string{`the spool has a file "` + late +
		`" that the recorder did not make; it is not in the bundle`}, got); diff != "" {
		t.Errorf("with a contract (-want +got):\n%s", diff)
	}
}
