package main

import (
	"fmt"
	"slices"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/schema"
)

// tellHealth says what a kernel layer that was tried has not seen, of a command
// that ran. Where that is an error of the run, it is told as one.
func (a *app) tellHealth(h *schema.ObservationHealth, result *schema.Result) {
	if h == nil || a.say.Quiet || result.Timings.ChildNS == nil {
		return
	}
	a.tellSandbox(h)
	if kernelOff(h) {
		return
	}
	why, remedy := runner.Incomplete(h)
	if why == "" || result.Error != nil && result.Error.Code == "kernel_layer_incomplete" {
		return
	}
	message := "the kernel layer is not complete, so the bundle may miss what the command did: " + why
	if h.KernelLayer == schema.Absent {
		message = "processes, files and network were NOT recorded: " + why
	}
	if remedy != "" {
		message += "; to fix it, " + remedy
	}
	a.say.Warning("%s", message)
}

// tellSandbox says where the sandbox or the command's user is not what a reader
// of the command line expects.
func (a *app) tellSandbox(h *schema.ObservationHealth) {
	for _, r := range h.Reasons {
		switch {
		case r.Subject != "user" && r.Subject != "sandbox", r.Code == "evidence_reachable", r.Code == "denials_unobserved", r.Code == "program_unusable":
		case r.Remedy == "":
			a.say.Warning("%s", r.Message)
		default:
			a.say.Warning("%s; to fix it, %s", r.Message, r.Remedy)
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
	return console.ExitError{Code: runner.ExitRunner, Err: console.WithHint(fmt.Errorf("the evidence was tampered with during the run: the bundle %s says where", console.Printable(sealed.Path)), archive.TamperedRemedy)}
}

// tellOutput says why the command could not write any more.
func (a *app) tellOutput(_ string, err error) {
	a.say.Warning("%v: from now on the command cannot write there (EPIPE), and the recorded copy ends here; make room where its output goes", err)
}

// tellLoss says that something was not recorded.
func (a *app) tellLoss(reason schema.Reason) {
	a.say.Warning("evidence is missing: %s", reason.Message)
}

// tellContract says what a reader of the verdict should know.
func (a *app) tellContract(c *schema.Contract) {
	for _, reason := range c.Reasons {
		a.say.Warning("contract: %s", reason)
	}
}
