package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/schema"
)

// tellHealth says what a kernel layer that was tried has not seen, of a command
// that ran. Where that is an error of the run, it is told as one.
func (a *app) tellHealth(h *schema.ObservationHealth, result *schema.Result, told func(message string) bool) {
	if h == nil || a.say.Quiet || result.Timings.ChildNS == nil {
		return
	}
	a.tellSandbox(h)
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
	a.say.Advice(firstRemedy(remedy), "%s", message)
}

// firstRemedy is the first of several remedies, the one that needs no privilege, and where
// the others are.
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

// tellLimits names the limits that the command met, which may be why it failed.
func (a *app) tellLimits(result *schema.Result) {
	if a.say.Quiet || !slices.Contains(result.LimitsHit, "pids") {
		return
	}
	a.say.Advice("raise --pids", "the command reached the limit of %d processes and threads, and could start no more",
		result.Limits.Pids)
}

// losses tells what was not recorded: the first loss at once, and all others at the end.
type losses struct {
	app *app

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
		l.app.say.Advice(reason.Remedy, "evidence is missing: %s", reason.Message)
		return
	}
	if !l.told[reason.Message] {
		l.told[reason.Message] = true
		l.later = append(l.later, reason.Message)
	}
}

// end tells what is left, and reports whether a message has been told.
func (l *losses) end() (told func(message string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.later) > 0 {
		l.app.say.Warning("more evidence is missing: %s", strings.Join(l.later, "; "))
		l.later = nil
	}
	return func(message string) bool { return l.told[message] }
}

// tellSandbox says where the sandbox or the command's user is not what a reader
// of the command line expects.
func (a *app) tellSandbox(h *schema.ObservationHealth) {
	for _, r := range h.Reasons {
		switch {
		case r.Subject != "user" && r.Subject != "sandbox", r.Code == "evidence_reachable",
			r.Code == "denials_unobserved", r.Code == "program_unusable":
		default:
			a.say.Advice(firstRemedy(r.Remedy), "%s", r.Message)
		}
	}
}

func kernelOff(h *schema.ObservationHealth) bool {
	return slices.ContainsFunc(h.Reasons, func(r schema.Reason) bool { return r.Code == layer.CodeOff })
}

// tampered tells what somebody changed while the run lived.
func (a *app) tampered(sealed archive.Sealed) error {
	for _, t := range sealed.Tampered {
		a.say.Warning("%s", console.Printable(t.String()))
	}
	return console.ExitError{Code: runner.ExitRunner,
		Err: console.WithHint(fmt.Errorf("the evidence was tampered with during the run: the bundle %s says where",
			console.Printable(sealed.Path)), archive.TamperedRemedy)}
}

// tellOutput says why the command could not write any more.
func (a *app) tellOutput(_ string, err error) {
	a.say.Warning("%v: from now on the command cannot write there (EPIPE), and the recorded copy ends here; make "+
		"room where its output goes", err)
}

// tellContract says what a reader of the verdict should know.
func (a *app) tellContract(c *schema.Contract) {
	for _, reason := range c.Reasons {
		a.say.Warning("contract: %s", reason)
	}
}
