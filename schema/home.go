package schema

import "fmt"

// Home is what policy.json says of the command's home directory in a sandbox, as sandbox.home.
type Home struct {
	Path string `json:"path"`
	// State is HomePrivate or HomeReal. Reason says why it is real although nobody asked for that.
	State  string `json:"state"`
	Reason string `json:"reason,omitzero"`
	// Layer is the directory that keeps the layer for later runs; empty: the layer is removed after the run.
	Layer string `json:"layer,omitzero"`
	// Login is the file with the command's login, if there is one.
	Login *HomeLogin `json:"login,omitzero"`
	// Written is what the layer contained when the command had ended, at most 10,000 entries, each directory sorted;
	// nil if nobody looked. Beyond counts the others, and directories that could not be read.
	Written []HomeWritten `json:"written,omitzero"`
	Beyond  int64         `json:"beyond,omitzero"`
}

// States of a home.
const (
	// HomePrivate shows the command its home. What the command writes there goes to a layer of the run, which is gone
	// afterwards.
	HomePrivate = "private"
	HomeReal    = "real" // it is what it is, and can be written only where a rule allows that
)

// HomeLogin is a file of the real home in which the command keeps a login.
type HomeLogin struct {
	Path string `json:"path"`
	// State is one of the states below. Reason says why a renewed login, or some of it, was not kept.
	State  string `json:"state"`
	Reason string `json:"reason,omitzero"`
}

// States of a login.
const (
	LoginUnchanged = "unchanged"
	LoginRenewed   = "renewed" // and written to the real home
	LoginNotKept   = "not_kept"
)

// HomeWritten is a path in a private home that the command made, changed or removed. A layer that is kept also has what
// earlier runs wrote.
type HomeWritten struct {
	// Path is relative to the home.
	Path string `json:"path"`
	// Kind is file, directory, link, other or removed.
	Kind  string `json:"kind"`
	Bytes int64  `json:"bytes,omitzero"`
}

// Text says in words what the home was.
func (h *Home) Text() string {
	text := h.State
	if h.Reason != "" {
		text += ": " + h.Reason
	}
	switch {
	case h.State != HomePrivate:
	case h.Written == nil:
		text += "; what was written there is not known"
	default:
		text += "; " + Count(len(h.Written)+int(h.Beyond), "path was", "paths were") + " written"
		if h.Layer != "" {
			text += ", and kept in " + h.Layer
		} else {
			text += ", and removed after the run"
		}
	}
	if l := h.Login; l != nil && l.State != LoginUnchanged {
		text += fmt.Sprintf("; the login %s was %s", l.Path, map[string]string{
			LoginRenewed: "renewed, also outside", LoginNotKept: "not kept"}[l.State])
		if l.Reason != "" {
			text += ": " + l.Reason
		}
	}
	return text
}
