package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// overlap starts 100 tool calls that are all open before the first one does
// anything, and each has short-lived processes touch files named after it. $1
// is how a tool's command is started: with an id or a span in its environment,
// or by assay-run call.
const overlap = `
n=0
emit() {
	printf '{"schema":"%s","run_id":"%s","seq":%d,"event_type":"%s","source":"sh","tool_call_id":"call-%s","tool":"touch","span_id":"%016x"}\n' \
		"$ASSAY_RUNNER_SDK_EVENT_SCHEMA" "$ASSAY_RUNNER_RUN_ID" $n $1 $2 $2 >> "$ASSAY_RUNNER_SDK_EVENT_LOG"
	n=$((n+1))
}
tool='until [ -e go ]; do sleep 0.01; done
	cat file-$0 file-$0 > /dev/null; sh -c "echo > out-$0"; touch made-$0; (rm made-$0; env -i cat file-$0 > copy-$0)'
for i in $(seq 100); do echo > file-$i-; done # before any call is open
for i in $(seq 100); do emit tool_call_started $i; done
for i in $(seq 100); do
	case $1 in
	env) ASSAY_TOOL_CALL_ID=call-$i sh -c "$tool" $i- & ;;
	span) TRACEPARENT=00-4bf92f3577b34da6a3ce929d0e0e4736-$(printf %016x $i)-01 sh -c "$tool" $i- & ;;
	cgroup) assay-run call --id call-$i -- sh -c "$tool" $i- & ;;
	esac
done
echo > go
wait
for i in $(seq 100); do emit tool_call_completed $i; done
`

// runBundle runs assay-run, under that name for its children as well, and opens
// the bundle.
func runBundle(t *testing.T, dir string, args ...string) *archive.Reader {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "assay-run")
	if err := os.Symlink(exe, bin); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin,
		append([]string{"-q", "--spool-dir", t.TempDir(), "-o", filepath.Join(dir, "b.tar.gz")}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r, err := archive.Open(filepath.Join(dir, "b.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func kernelEvents(t *testing.T, r *archive.Reader, f func(*schema.KernelEvent)) {
	t.Helper()
	var e schema.KernelEvent
	for line, err := range r.Lines(context.Background(), schema.KernelPath) {
		if err == nil {
			err = schema.DecodeKernelEvent(line, &e)
		}
		if err != nil {
			t.Fatal(err)
		}
		f(&e)
	}
}

// TestHundredOverlappingCalls: every event that names a call's file is bound to
// that call, by the environment as by cgroups.
func TestHundredOverlappingCalls(t *testing.T) {
	layertest.Host(t)
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	named := regexp.MustCompile(`/(?:file|out|made|copy)-([0-9]+)-$`)
	for _, how := range []string{"env", "span", "cgroup"} {
		t.Run(how, func(t *testing.T) {
			method := how
			if how == "span" {
				method = "env"
			}
			dir := t.TempDir()
			r := runBundle(t, dir, "--kernel", "require", "--kernel-buffer", "32M", "--agent-shim", "openai-agents",
				"--sdk-event-log", "sdk.ndjson", "--", "sh", "-c", overlap, "agent", how)
			docs, err := r.Documents(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if docs.Health.KernelLayer != schema.Complete {
				t.Errorf("kernel layer %s: %v", docs.Health.KernelLayer, docs.Health.Reasons)
			}
			agent := map[uint64]bool{} // the agent's own instance makes the file-N- itself
			right, wrong := map[string]int{}, 0
			kernelEvents(t, r, func(e *schema.KernelEvent) {
				m := named.FindStringSubmatch(e.Value)
				// A helper with which the runner starts it, for the caller's limits and signals, is executed first.
				if len(agent) == 0 && e.Kind == schema.KindExec && e.Class == schema.ClassAgent {
					agent[e.ExecID] = true
				}
				if m == nil || agent[e.ExecID] {
					return
				}
				ok := e.ToolCallID == "call-"+m[1] && e.BoundBy == method
				if method == "env" { // "env -i" takes the variable away, not the call
					ok = ok || e.ToolCallID == "call-"+m[1] && e.BoundBy == "lineage"
				}
				if !ok {
					if wrong++; wrong < 5 {
						t.Errorf("%s of %s is bound to %q by %q", e.Kind, e.Value, e.ToolCallID, e.BoundBy)
					}
					return
				}
				right[e.ToolCallID]++
			})
			if wrong > 0 || len(right) != 100 {
				t.Errorf("%d events bound wrongly, %d calls have events of their own", wrong, len(right))
			}
			c := docs.Correlation
			if len(c.Bindings) != 100 || len(c.ReportedNotObserved) != 0 || c.Status != schema.Clean {
				t.Errorf("%d bindings, status %s, ambiguities %v, not observed %v", len(c.Bindings), c.Status,
					c.Ambiguities, c.ReportedNotObserved)
			}
			for _, b := range c.Bindings {
				if b.Method != method || b.Tool != "touch" || how == "cgroup" && b.CgroupID == 0 {
					t.Errorf("%s: method %s, tool %s, cgroup %d", b.ToolCallID, b.Method, b.Tool, b.CgroupID)
				}
				id := strings.TrimPrefix(b.ToolCallID, "call-")
				for _, want := range []string{"out", "made", "copy"} {
					if !strings.Contains(strings.Join(b.Written, "\n")+"\n", fmt.Sprintf("/%s-%s-\n", want, id)) {
						t.Errorf("%s: %s-%s- is not among %v", b.ToolCallID, want, id, b.Written)
					}
				}
				for _, f := range b.Files {
					if m := named.FindStringSubmatch(f); m != nil && m[1] != id {
						t.Errorf("%s has another call's file %s", b.ToolCallID, f)
					}
				}
			}
		})
	}
}
