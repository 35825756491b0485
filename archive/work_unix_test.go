//go:build unix

package archive

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

// workSize is how many bytes the member under test unpacks to.
const workSize = 2 << 20

// workBound is how many times the CPU time of an honest bundle any other bundle may take
// that unpacks to as much, into a document or into other members as that one.
const workBound = 5

// FuzzWork makes bundles of which one member is head, then unit over and over, then
// tail, and measures how much CPU time its readers take. "%d" in the unit is the number
// of the repetition. The rest of the bundle, and every digest, is right.
func FuzzWork(f *testing.F) {
	layertest.Host(f)
	kernel := strings.Replace(string(kernelLine(nil, testRunID, 7)), `"seq":7`, `"seq":%d`, 1) + "\n"
	policy := fmt.Sprintf(`{"schema":%q,"run_id":%q,"seq":%%d,"source_event_type":"a","source":"b","tool_call_id":"c","tool":"d","decision":"allow"}`+"\n", schema.PolicyEventV0, testRunID)
	correlation := fmt.Sprintf(`{"schema":%q,"run_id":%q,"status":"partial",`, schema.CorrelationReportV0, testRunID)
	for _, seed := range []struct{ path, head, unit, tail string }{
		{schema.KernelPath, "", "\n", ""},
		{schema.SDKPath, "", "\n", ""},
		{schema.EventsPath, "", "\n", ""},
		{schema.KernelPath, kernel, "\n", ""},
		{schema.KernelPath, "", kernel + "\n", ""},
		{schema.KernelPath, "", kernel, ""},
		{schema.KernelPath, "", "{}\n", ""},
		{schema.KernelPath, "", `{"a":1}`, "\n"},
		{schema.TurnsPath, "", "[", "\n"},
		{schema.PolicyPath, "", policy, ""},
		{schema.StdoutPath, "", "\n", ""},
		{schema.CorrelationPath, "", "[", ""},
		{schema.RunPath, "", "\n", "{}"},
		{schema.SurfacePath, "", "\n", "{}"},
		{"layers/other.ndjson", "", "\n", ""},
		{schema.PolicyPath, "", strings.Replace(policy, `"b"`, `"\\u0062"`, 1), ""},
		{schema.PolicyPath, "", strings.Replace(policy, `"source"`, `"x%d":0,"source"`, 1), ""},
		{schema.PolicyPath, "", strings.Replace(policy, `"source"`, `"x":{"y%d":0},"source"`, 1), ""},
		{schema.PolicyPath, "", strings.Replace(policy, `"source"`, `"x%d":0,"y%d":0,"z%d":0,"source"`, 1), ""},
		{schema.TurnsPath, "", fmt.Sprintf(`{"schema":%q,"run_id":%q,"seq":%%d,"index":%%d,"x%%d":0}`+"\n",
			schema.TurnV0, testRunID), ""},
		{schema.CorrelationPath, correlation + `"bindings":[],"ambiguities":[""`, `,"%d"`, `]}`},
		{schema.CorrelationPath, correlation + `"bindings":[],"ambiguities":[""`, `,""`, `]}`},
		{schema.CorrelationPath, correlation + `"bindings":[],"ambiguities":[],"x":[`, `{},`, `{}]}`},
		{schema.CorrelationPath, correlation + `"bindings":[],"ambiguities":[]`, `,"x%d":0`, `}`},
		{schema.CorrelationPath, correlation + `"bindings":[],"ambiguities":[],"x":`, `[`, `}`},
		{schema.CorrelationPath, correlation + `"bindings":[],"ambiguities":[],"x":[0`, `,1e9`, `]}`},
	} {
		f.Add(seed.path, seed.head, seed.unit, seed.tail)
	}
	base := sampleFiles(f)
	honest := map[string]time.Duration{} // by the member that holds most of the bundle
	f.Fuzz(func(t *testing.T, path, head, unit, tail string) {
		if unit == "" || !safePath(path) || path == schema.ManifestPath || len(head)+len(unit)+len(tail) > workSize/16 {
			t.Skip("not a member")
		}
		like, content := schema.KernelPath, repeated("", kernel, "")
		if documentSchema(path) != "" {
			like, content = schema.CorrelationPath,
				repeated(correlation+`"bindings":[],"ambiguities":["0"`, `,"%d"`, "]}")
		}
		if honest[like] == 0 {
			honest[like] = leastWork(t, base, like, content, 3, 0)
		}
		most := workBound * honest[like]
		if took := leastWork(t, base, path, repeated(head, unit, tail), 3, most); took > most {
			t.Errorf("reading took %v of CPU, an honest bundle of this size %v", took, honest[like])
		}
	})
}

// repeated is a member of workSize bytes.
func repeated(head, unit, tail string) []byte {
	var b bytes.Buffer
	b.WriteString(head)
	for n := 0; b.Len()+len(tail) < workSize; n++ {
		b.WriteString(strings.ReplaceAll(unit, "%d", fmt.Sprint(n)))
	}
	b.WriteString(tail)
	return b.Bytes()
}

// leastWork is the least CPU time of several readings; it is content with one that
// takes no more than enough.
func leastWork(t *testing.T, base files, path string, content []byte, times int, enough time.Duration) time.Duration {
	f := files{}
	for p, b := range base {
		f[p] = b
	}
	f[path] = content
	if path != schema.IntegrityPath {
		f.reseal()
	}
	name := filepath.Join(t.TempDir(), "work.tar")
	if err := os.WriteFile(name, joined(f.entries(canonical(f.manifest()))), 0o600); err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	for range times {
		start := cpuTime(t)
		readAsAll(t, name)
		took = append(took, cpuTime(t)-start)
		if slices.Min(took) <= enough {
			break
		}
	}
	return slices.Min(took)
}

// readAsAll reads a bundle as verify, and then as the readers that show it, do.
func readAsAll(t *testing.T, name string) {
	ctx := context.Background()
	r, _, err := Input{Name: name, Path: name}.Verified(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if r == nil {
		return
	}
	if _, err := r.Documents(ctx); err != nil && !isProblem(err) {
		t.Fatal(err)
	}
	for m, err := range r.Members(ctx) {
		if err != nil {
			return
		}
		if !isLayer(m.Path) {
			_, _ = io.Copy(io.Discard, m)
			continue
		}
		for range m.Lines() {
		}
	}
}

// cpuTime is what this process has used.
func cpuTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
