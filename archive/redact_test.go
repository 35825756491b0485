package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

const aSecret = "correct-horse-771"

func newRedactor() *redact.Redactor {
	r := redact.New([]byte("a key of the tests"))
	r.Keep(testRunID)
	return r
}

// recordSecrets plays a run that has a secret in members of every kind, with
// checkpoints in between.
func recordSecrets(t *testing.T, s *Spool) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var points []schema.Checkpoint
	s.OnCheckpoint(func(c schema.Checkpoint) { points = append(points, c) })
	told := map[string]uint64{}
	checkpoint := func() {
		s.makeCheckpoint(told)
		for _, c := range points {
			appendEvent(t, s, schema.Event{Type: schema.CheckpointMade, Checkpoint: &c})
		}
		points = nil
	}
	text := []byte("a large text with " + aSecret + " in it")
	sum := sha256.Sum256(text)
	must(s.Put(schema.BlobsDir+hex.EncodeToString(sum[:]), text))
	w, err := s.Create(schema.StderrPath)
	must(err)
	cast, err := s.Create(schema.TerminalPath)
	must(err)
	fmt.Fprintln(cast, `{"version":3,"term":{"cols":80,"rows":24}}`)
	shim, ms := "none", int64(0)
	appendEvent(t, s, schema.Event{Type: schema.RunStarted, AgentShim: &shim, Command: []string{"/bin/true"},
		EnvKeys: []string{}, WindowElapsedMS: &ms})
	for i := range 5 {
		must(s.Append(schema.KernelPath, func(b []byte, seq uint64) []byte {
			return append(b, bytes.Replace(kernelLine(nil, testRunID, seq), []byte(`"value":"`),
				[]byte(`"value":"/`+aSecret), 1)...)
		}))
		must(s.Append(schema.TurnsPath, func(b []byte, seq uint64) []byte {
			name := hex.EncodeToString(sum[:])
			return fmt.Appendf(b, `{"schema":"assay.runner.turn.v0","run_id":%q,"seq":%d,"index":%d,"tool":"t","source":"gateway","tool_call_id":"tc_1","t_start_ns":0,"t_end_ns":1,"verifier_verdict":"not_run","parameters":{"p":"%s%s"},"output":null,"blobs":[{"path":"/parameters/p","bytes":%d,"sha256":"sha256:%s"}]}`, testRunID, seq, seq, schema.BlobsDir, name, len(text), name)
		}))
		fmt.Fprintf(w, "line %d %s\n", i, base64.StdEncoding.EncodeToString([]byte(aSecret)))
		half := aSecret[:3+i]
		fmt.Fprintf(cast, "[0.1, \"o\", \"$ %s\"]\n[0.1, \"o\", \"%s.\"]\n", half, aSecret[len(half):])
		checkpoint()
	}
	must(w.Close())
	must(cast.Close())
	finish(t, s)
	size := s.members[schema.StderrPath].ledger.size
	zero := 0
	doc, err := schema.Document(schema.Result{
		Schema: schema.ResultV0, RunID: testRunID, Outcome: schema.OutcomeExited, ExitCode: &zero,
		RunnerExitCode: &zero, LimitsHit: []string{},
		Stdio: schema.Stdio{Mode: "pipe", Stdout: &schema.Stream{Bytes: 6, Captured: 6},
			Stderr: &schema.Stream{Bytes: size, Captured: size}},
	})
	must(err)
	must(s.Put(schema.ResultPath, doc))
}

// mustNotHold tells of members in which a text stands in any form.
func mustNotHold(t *testing.T, bundle, text string) {
	t.Helper()
	find := newRedactor()
	find.Add(redact.RuleGiven, text)
	_, content := members(t, bundle)
	for path, data := range content {
		if find.Finds([]byte(data)) || strings.Contains(data, text) {
			t.Errorf("%s holds %s:\n%.400s", path, text, data)
		}
	}
}

func documentsOf(t *testing.T, bundle string) *Documents {
	t.Helper()
	in, err := Open(bundle)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := in.Documents(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

func TestWhatBecomesKnownLateIsNotSealed(t *testing.T) {
	run := testRun(t)
	s, _ := newSpool(t, run)
	recordSecrets(t, s)
	r := newRedactor()
	r.Add(redact.RuleArgument, aSecret)
	s.Redact(r)
	sealed, err := s.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, sealed.Path)
	mustNotHold(t, sealed.Path, aSecret)
	mustNotHold(t, sealed.Path, aSecret[7:])
	names, content := members(t, sealed.Path)
	for _, name := range names {
		if strings.HasPrefix(name, schema.BlobsDir) &&
			strings.Count(content[schema.TurnsPath], strings.TrimPrefix(name, schema.BlobsDir)) != 10 {
			t.Errorf("the turns do not name %s: %s", name, content[schema.TurnsPath])
		}
	}
	want := map[string]uint64{schema.KernelPath: 5, schema.StderrPath: 5, schema.TerminalPath: 5}
	got := map[string]uint64{}
	for path, n := range sealed.Removed.ByField {
		if !strings.HasPrefix(path, schema.BlobsDir) {
			got[path] = n
		}
	}
	if d := cmp.Diff(want, got); d != "" || sealed.Removed.RedactedCount != 16 {
		t.Errorf("%d taken out: %s", sealed.Removed.RedactedCount, d)
	}
	h := documentsOf(t, sealed.Path).Health
	if d := cmp.Diff([]schema.Removal{*sealed.Removed}, h.Redaction.Removals); d != "" ||
		h.Redaction.RedactedCount != 16 {
		t.Errorf("the health tells of %d: %s", h.Redaction.RedactedCount, d)
	}
}

func TestALayerThatASecretCannotBeTakenOutOfIsEmptied(t *testing.T) {
	s, _ := newSpool(t, testRun(t))
	shim, ms := "none", int64(0)
	appendEvent(t, s, schema.Event{Type: schema.RunStarted, AgentShim: &shim, Command: []string{"/bin/true"},
		EnvKeys: []string{}, WindowElapsedMS: &ms})
	err := s.Append(schema.KernelPath, func(b []byte, seq uint64) []byte {
		return fmt.Appendf(b, `{"schema":"assay.runner.kernel_event.v0","run_id":%q,"seq":%d,"pid":1,"event_type":65535,"kind":"event_65535","value":"x"}`, testRunID, seq)
	})
	if err != nil {
		t.Fatal(err)
	}
	s.makeCheckpoint(map[string]uint64{})
	finish(t, s)
	r := newRedactor()
	r.Add(redact.RuleEnv, "event_65535")
	s.Redact(r)
	sealed, err := s.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	report := mustBeSound(t, sealed.Path)
	mustNotHold(t, sealed.Path, "event_65535")
	h := documentsOf(t, sealed.Path).Health
	named := slices.ContainsFunc(h.Reasons, func(r schema.Reason) bool {
		return r.Code == CodeSecretDropped && r.Subject == "kernel"
	})
	if report.Lines[schema.KernelPath] != 0 || !named || h.Layers["kernel"].Dropped != 1 ||
		!slices.Equal(sealed.Removed.Dropped, []string{schema.KernelPath}) {
		t.Errorf("%d lines, %+v, %+v, %+v", report.Lines[schema.KernelPath], h.Reasons, h.Layers["kernel"],
			sealed.Removed)
	}
}

func TestACaptureThatASecretCannotBeTakenOutOfIsDropped(t *testing.T) {
	s, _ := newSpool(t, testRun(t))
	record(t, s, 1)
	// Whoever knows the tag that stands for a secret can name it as another one.
	r := newRedactor()
	r.Add(redact.RuleEnv, aSecret)
	clean := string(r.Text("t", []byte(aSecret)))
	r.Add(redact.RuleArgument, strings.Trim(clean, "<>")[len("redacted:"):])
	if !r.Finds([]byte(clean)) {
		t.Fatal(clean)
	}
	w, err := s.Create(schema.StderrPath)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(w, "%s\n%s\n", aSecret, clean)
	w.Close()
	s.Redact(r)
	sealed, err := s.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, sealed.Path)
	mustNotHold(t, sealed.Path, aSecret)
	if !slices.Equal(sealed.Removed.Dropped, []string{schema.StderrPath}) {
		t.Errorf("%+v", sealed.Removed)
	}
}

func TestRedactMakesANewBundle(t *testing.T) {
	s, _ := newSpool(t, testRun(t))
	recordSecrets(t, s)
	old, err := s.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(old.Path)
	if err != nil {
		t.Fatal(err)
	}
	r := newRedactor()
	r.Add(redact.RuleGiven, aSecret)
	rules, err := redact.ParseRules([]byte("greeting hel+o"))
	if err != nil {
		t.Fatal(err)
	}
	r.Use(rules)
	name := filepath.Join(t.TempDir(), "new.tar.zst")
	sealed, err := Redact(context.Background(), old.Path, name, r,
		RedactOptions{By: "test", Rules: []string{"greeting"}})
	if err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, name)
	mustNotHold(t, name, aSecret)
	mustNotHold(t, name, "hello")
	if after, err := os.ReadFile(old.Path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the old bundle changed: %v", err)
	}
	got := documentsOf(t, name).Health.Redaction.Removals
	if len(got) != 1 || got[0].From != old.Identity || got[0].ByRule["given"] != 16 || got[0].ByRule["greeting"] != 1 {
		t.Errorf("%+v", got)
	}
	// Again: nothing is left, and the chain of identities stays.
	again := filepath.Join(t.TempDir(), "again.tar.gz")
	if _, err := Redact(context.Background(), name, again, r, RedactOptions{}); err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, again)
	got = documentsOf(t, again).Health.Redaction.Removals
	if len(got) != 2 || got[1].From != sealed.Identity || got[1].RedactedCount != 0 {
		t.Errorf("%+v", got)
	}
	// What is there is not replaced; what does not verify is not redacted.
	if _, err := Redact(context.Background(), old.Path, again, r, RedactOptions{}); err == nil {
		t.Error("a file was replaced")
	}
	bad := filepath.Join(t.TempDir(), "bad.tar.gz")
	if err := os.WriteFile(bad, before[:len(before)-40], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Redact(context.Background(), bad, filepath.Join(t.TempDir(), "x.tar.gz"), r,
		RedactOptions{}); err == nil {
		t.Error("a damaged bundle was redacted")
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(name), "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("%v, %v beside the new bundle", err, left)
	}
}

func TestASecretIsFoundWhereverItStands(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	src := source{path: schema.StdoutPath, data: text, size: int64(len(text))}
	none := newRedactor()
	if found, err := holds(t.Context(), none, src); found || err != nil {
		t.Errorf("with no secret known: %t, %v", found, err)
	}
	r := newRedactor()
	r.Add(redact.RuleGiven, aSecret)
	if found, err := holds(t.Context(), r, src); found || err != nil {
		t.Errorf("without one: %t, %v", found, err)
	}
	for at := 256<<10 - 40; at < 256<<10+40; at++ { // around the end of what is read at once
		with := bytes.Clone(text)
		copy(with[at:], aSecret)
		src.data = with
		if found, err := holds(t.Context(), r, src); !found || err != nil {
			t.Fatalf("at %d: %t, %v", at, found, err)
		}
	}
}
