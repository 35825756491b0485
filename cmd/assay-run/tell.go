package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
	"github.com/assay-run/assay-run/schema/specfile"
)

// tellHealth warns if the kernel layer may have missed something. It does not if the layer was off,
// if the command never ran, or if that was told already.
func tellHealth(say *console.Messages, h *schema.ObservationHealth, result *schema.Result,
	told func(message string) bool) {
	if h == nil || say.Quiet || result.Timings.ChildNS == nil {
		return
	}
	tellSandbox(say, h)
	if kernelOff(h) {
		return
	}
	why, remedy := runner.Incomplete(h)
	if why == "" || told(why) || result.Error != nil && result.Error.Code == "kernel_layer_incomplete" {
		return
	}
	message := "the kernel layer is not complete, so the bundle may miss what the command did: " + why
	if h.KernelLayer == schema.Absent {
		message = "processes, files and network were NOT recorded: " + why
	}
	say.Advice(firstRemedy(remedy), "%s", message)
}

// firstRemedy shortens a list of remedies to the first one and the one that needs no privilege, and
// says where the others are.
func firstRemedy(remedy string) string {
	first, others, more := strings.Cut(remedy, "; or ")
	if !more {
		return remedy
	}
	if strings.Contains(others, "--kernel notify") {
		first += "; or use --kernel notify"
	}
	return first + " (assay-run doctor shows other ways)"
}

// tellLimits warns if the command reached the limit of processes, which may be why it failed.
func tellLimits(say *console.Messages, result *schema.Result) {
	if say.Quiet || !slices.Contains(result.LimitsHit, "pids") {
		return
	}
	say.Advice("raise --pids", "the command reached the limit of %d processes and threads, and could start no more",
		result.Limits.Pids)
}

// tellReplay says how the command's requests to models differed from those of the replayed run, and
// whether secrets were missing in the answers.
func tellReplay(say *console.Messages, result *schema.Result) {
	if say.Quiet || result.Model == nil || result.Model.Replay == nil {
		return
	}
	r := result.Model.Replay
	if r.Unused > 0 {
		say.Warning("%s not used: the command asked for less than in the replayed run",
			schema.Count(r.Unused, "answer of the replayed bundle was", "answers of the replayed bundle were"))
	}
	if r.Redacted > 0 {
		say.Warning("%s replayed without the secrets that were redacted from the recorded run",
			schema.Count(r.Redacted, "answer was", "answers were"))
	}
	if r.Drifted > 0 {
		say.Info("%s from the recorded ones in words; layers/model.ndjson says where",
			schema.Count(r.Drifted, "request to a model differs", "requests to models differ"))
	}
}

// elsewhere are variables with which an agent asks the models of a cloud, past the gateway.
var elsewhere = []struct{ variable, agent string }{
	{"CLAUDE_CODE_USE_BEDROCK", "Claude Code"}, {"CLAUDE_CODE_USE_VERTEX", "Claude Code"},
	{"CLAUDE_CODE_USE_FOUNDRY", "Claude Code"}, {"GOOGLE_GENAI_USE_VERTEXAI", "Gemini CLI"},
}

// tellModel warns if no request came to the model gateway.
func tellModel(say *console.Messages, spec *specfile.Spec, result *schema.Result) {
	if say.Quiet || result.Model == nil || result.Model.Requests > 0 || result.Timings.ChildNS == nil {
		return
	}
	hint := "agents find it by ANTHROPIC_BASE_URL, OPENAI_BASE_URL and GOOGLE_GEMINI_BASE_URL; see docs/model.md"
	for _, e := range elsewhere {
		value, given := spec.Env[e.variable]
		if !given {
			value = os.Getenv(e.variable)
		}
		if value != "" && value != "0" && value != "false" {
			hint = e.variable + " is set, so " + e.agent + " asks another provider and not the gateway; unset it"
		}
	}
	for _, name := range agents.Names() {
		if r, err := agents.ByName(name); err == nil && spec.Recipe == nil && slices.ContainsFunc(spec.Command,
			func(word string) bool { return filepath.Base(word) == r.Command[0] }) {
			hint = "add --agent " + name + ", which tells it the address"
		}
	}
	say.Advice(hint, "no request came to the model gateway")
}

// losses warns about what was not recorded: the first loss at once, and all others at the end.
type losses struct {
	say *console.Messages

	mu    sync.Mutex // guards what follows
	later []string
	told  map[string]bool
}

// add is [runner.Options.OnLoss].
func (l *losses) add(reason schema.Reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == nil {
		l.told = map[string]bool{reason.Message: true}
		l.say.Advice(reason.Remedy, "evidence is missing: %s", reason.Message)
		return
	}
	if !l.told[reason.Message] {
		l.told[reason.Message] = true
		l.later = append(l.later, reason.Message)
	}
}

// end warns about the other losses. The function that it returns reports whether a message was
// printed.
func (l *losses) end() (told func(message string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.later) > 0 {
		l.say.Warning("more evidence is missing: %s", strings.Join(l.later, "; "))
		l.later = nil
	}
	return func(message string) bool { return l.told[message] }
}

// tellSandbox warns if the sandbox or the command's user is not what the command line says.
func tellSandbox(say *console.Messages, h *schema.ObservationHealth) {
	for _, r := range h.Reasons {
		switch {
		case !slices.Contains([]string{"user", "sandbox", "closed_book"}, r.Subject), r.Code == "evidence_reachable",
			r.Code == "denials_unobserved", r.Code == "program_unusable":
		default:
			say.Advice(firstRemedy(r.Remedy), "%s", r.Message)
		}
	}
}

// tellSearch tells the user why nothing happens.
func tellSearch(say *console.Messages, dir string) {
	say.Info("searching %s for files that git, shells, editors and agents obey; this takes a while", dir)
}

// maxStartupShown is how many changes of what programs obey are named.
const maxStartupShown = 5

// tellStartup warns of what programs that start outside would obey since the run.
func tellStartup(say *console.Messages, h *schema.ObservationHealth) {
	if h == nil || h.Startup == nil || say.Quiet || len(h.Startup.Changes) == 0 {
		return
	}
	changes := h.Startup.Changes
	shown := changes[:min(len(changes), maxStartupShown)]
	for _, c := range shown[1:] {
		say.Warning("since the run, %s", schema.OneLine(c.String()))
	}
	hint := "read the file before you run git, a shell, an editor or an agent there"
	if more := len(changes) + h.Startup.Beyond - maxStartupShown; more > 0 {
		hint += fmt.Sprintf("; observation-health.json has %d more changes", more)
	}
	say.Advice(hint, "since the run, %s", schema.OneLine(shown[0].String()))
}

func kernelOff(h *schema.ObservationHealth) bool {
	return slices.ContainsFunc(h.Reasons, func(r schema.Reason) bool { return r.Code == layer.CodeOff })
}

// tellTampered names what somebody changed in the evidence during the run.
func tellTampered(say *console.Messages, sealed archive.Sealed) error {
	for _, t := range sealed.Tampered {
		say.Warning("%s", schema.OneLine(t.String()))
	}
	return console.ExitError{Code: schema.ExitRunner,
		Err: console.WithHint(fmt.Errorf("the evidence was tampered with during the run: the bundle %s says where",
			schema.OneLine(sealed.Path)), archive.TamperedRemedy)}
}

// tellSwept names the runs whose processes outlived their runner.
func tellSwept(say *console.Messages, swept []cgroup.Swept) {
	for _, s := range swept {
		switch {
		case s.Stopped:
			say.Warning("run %s was killed while its guard was stopped: the guard has now ended the "+
				"processes that were left", schema.OneLine(s.RunID))
		case s.Killed > 0:
			say.Warning("run %s was killed; assay-run has now ended the processes that it left (%d)",
				schema.OneLine(s.RunID), s.Killed)
		}
	}
}

// tellOutput says why the command can no longer write its output.
func tellOutput(say *console.Messages, err error) {
	say.Warning("%v: from now on the command cannot write there (EPIPE), and the recorded copy ends here; make "+
		"room where its output goes", err)
}

// tellContract prints the reasons for the contract's verdict.
func tellContract(say *console.Messages, c *schema.Contract) {
	for _, reason := range c.Reasons {
		say.Warning("contract: %s", reason)
	}
}

// checkBar draws a bar on a terminal while a check of a contract takes long.
type checkBar struct {
	w     *os.File
	quiet bool

	end func() // of the current check's bar
}

// check is called when a check starts and when it has ended. One check runs at a time.
func (b *checkBar) check(name string, ended bool) {
	if ended {
		b.end()
		return
	}
	b.end = func() {}
	_, bar := console.NewProgress(context.Background(), b.w, "checking")
	if bar == nil || b.quiet {
		return
	}
	bar.Item(0, 1, name)
	over := make(chan struct{})
	var drawing sync.WaitGroup
	drawing.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Second):
				bar.Step(0, 0)
			}
		}
	})
	b.end = func() {
		close(over)
		drawing.Wait()
		bar.Done()
	}
}

type denied struct{ what, remedy string }

const (
	// deniedAfter is how long after a denial the terminal shows it. A command that ends earlier did
	// not wait for what was denied.
	deniedAfter = 5 * time.Second
	// maxDeniedShown is how many of them are named.
	maxDeniedShown = 5
)

// refusals tells which connections and writes the sandbox denied: at the end of the run, and
// on a terminal also while the command may be waiting for one.
type refusals struct {
	say      *console.Messages
	terminal bool // say writes to one

	mu    sync.Mutex // guards what follows
	list  []denied
	told  int // how many of list were shown on the terminal
	timer *time.Timer
	ended bool
}

// add is [runner.Options.OnDenied].
func (d *refusals) add(what, remedy string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, denied{what, remedy})
	if d.terminal && !d.ended && d.timer == nil {
		d.timer = time.AfterFunc(deniedAfter, d.meanwhile)
	}
}

// meanwhile shows what was denied since the last time.
func (d *refusals) meanwhile() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer = nil
	if d.ended || d.say.Quiet {
		return
	}
	d.show(d.list[min(d.told, len(d.list)):])
	d.told = len(d.list)
}

// end shows all that was denied.
func (d *refusals) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	if d.timer != nil {
		d.timer.Stop()
	}
	if !d.say.Quiet {
		d.show(d.list)
	}
}

func (d *refusals) show(list []denied) {
	for i, c := range list {
		if i == maxDeniedShown {
			d.say.Warning("the sandbox denied %d more connections or writes; assay-run inspect lists them", len(list)-i)
			return
		}
		d.say.Warning("the sandbox denied %s; to allow it, %s", c.what, c.remedy)
	}
}
