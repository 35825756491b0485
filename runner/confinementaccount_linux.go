package runner

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

// openToAll says that a command which nothing restricts runs as the user whose
// files the evidence is.
func (c *confinement) openToAll() {
	if len(c.hidden) > 0 {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "sandbox", Code: "evidence_reachable", Message: "the command ran as the user that keeps the evidence, and could reach it",
			Remedy: "run with --mode workspace-write or read-only",
		})
	}
}

// unusable turns what the user cannot use into reasons.
func (c *confinement) unusable() {
	for _, u := range c.box.Unusable() {
		r := schema.Reason{Subject: "user", Code: "file_unusable", Remedy: "give uid " + strconv.Itoa(c.profile.User.UID) + " access to it, and to the directories above it"}
		why := syscall.Errno(u.Errno)
		switch self, _ := os.Executable(); u.Path {
		case c.profile.Dir:
			r.Code = "workspace_unwritable"
			r.Message = fmt.Sprintf("the command's user cannot write the working directory %s: %v", u.Path, why)
			if c.profile.Mode == sandbox.ReadOnly {
				r.Message = fmt.Sprintf("the command's user cannot read the working directory %s: %v", u.Path, why)
			}
		case self:
			r.Code = "program_unusable"
			r.Message = fmt.Sprintf("the command's user cannot execute %s (%v), so its agent cannot report tool calls with it", u.Path, why)
		default:
			r.Message = fmt.Sprintf("the command's user cannot write %s (%v), so the bundle lacks what the agent reports there", u.Path, why)
		}
		c.reasons = append(c.reasons, r)
	}
}

// effective is policy.json's account of the sandbox.
type effective struct {
	*sandbox.Profile
	RuleIDs []string        `json:"rule_ids"`
	Layers  []sandbox.Layer `json:"layers"`
}

// document writes policy.json: before the command starts, and once more when it
// is known how the layers went.
func (c *confinement) document() error {
	account, err := json.Marshal(effective{c.profile, c.profile.Rules(), c.layers})
	if err != nil {
		return fmt.Errorf("encode policy.json: %w", err)
	}
	file := c.file
	if file == nil {
		file = &policy.File{}
	}
	file.Effective = account
	doc, _ := policy.NewSet(file).Document(c.log.RunID)
	if c.rules != nil {
		if now, any := c.rules(); any {
			doc = now // with what clients added
			doc.Sandbox = account
		}
	}
	return c.log.Put(schema.PolicyFilePath, doc)
}

// explain turns the layers' reports and what appeared into reasons.
func (c *confinement) explain() {
	for _, l := range c.layers {
		if l.State == sandbox.Enforced || l.Layer == sandbox.LayerCgroupBPF && c.enforced(sandbox.LayerNetwork) {
			continue
		}
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "sandbox", Code: "layer_" + l.State, Message: fmt.Sprintf("the layer %s is not fully enforced: %s", l.Layer, l.Reason),
			Remedy: sandbox.Remedy(l),
		})
	}
	for _, p := range c.profile.Appeared() {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "sandbox", Code: "protected_file_created",
			Message: fmt.Sprintf("the run created %s, which programs outside the sandbox run or read", p.Path),
			Remedy:  "read it before you run them",
		})
	}
}

// enforced tells whether all these layers are.
func (c *confinement) enforced(names ...string) bool {
	for _, name := range names {
		if !slices.ContainsFunc(c.layers, func(l sandbox.Layer) bool { return l.Layer == name && l.State == sandbox.Enforced }) {
			return false
		}
	}
	return true
}

// noteNoTyping says what is refused to a command that has our own terminal.
const noteNoTyping = "terminal_input_refused: the command had the runner's own terminal, and could not put input into it (TIOCSTI); without CAP_SYS_ADMIN it could not gain privileges either (no_new_privs)"

// resistance is how far the command was kept from the recorder, by what was really
// in force: without a sandbox it was the user whose files the evidence is.
func (c *confinement) resistance() string {
	switch {
	case c.profile == nil:
	case c.profile.Mode != sandbox.Observe && c.enforced(sandbox.LayerNamespaces, sandbox.LayerFiles, sandbox.LayerPrivileges):
		return schema.ResistsSandbox
	case c.profile.User != nil && int(c.profile.User.UID) != os.Getuid() && c.enforced(sandbox.LayerPrivileges):
		return schema.ResistsUser
	}
	return schema.ResistsNone
}

func (c *confinement) health(h *schema.ObservationHealth) {
	h.TamperResistance = c.resistance()
	if c.profile != nil && c.profile.NoTyping && c.enforced(sandbox.LayerSeccomp) {
		h.Notes = append(h.Notes, noteNoTyping)
	}
	h.Reasons = append(h.Reasons, c.reasons...)
	h.Reasons = append(h.Reasons, c.denials.reasons(c.observed())...)
}
