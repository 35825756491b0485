package schema

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
)

// ClosedBook says which channels to its task's answer were closed while the command worked.
type ClosedBook struct {
	// State is BookClosed or BookOpen.
	State string `json:"state"`
	// Covers are the channels that State is about: network always, history if there is a repository, provider_tools if
	// requests to a model go through the gateway, and packages if the working directory says which packages it holds.
	Covers []string `json:"covers"`
	// StartCommit is the only commit, with its history, that the command's repository had; empty without one.
	StartCommit string `json:"start_commit,omitempty"`
	// Hidden are files and directories that the command did not see, because they have more of the history or later
	// versions of the packages.
	Hidden []string `json:"hidden,omitempty"`
	// Allowed are the hosts, ports of 127.0.0.1 and Unix sockets that the policy let the command reach.
	Allowed []string `json:"allowed,omitempty"`
	// Reasons say why the book was open.
	Reasons []BookReason `json:"reasons"`
}

// Open adds why the book was open.
func (b *ClosedBook) Open(host, code, message, remedy string) {
	b.State = BookOpen
	b.Reasons = append(b.Reasons, BookReason{Host: host,
		Reason: Reason{Subject: "closed_book", Code: code, Message: message, Remedy: remedy}})
}

// BookReason says why a book was open.
type BookReason struct {
	Reason
	// Host is one of ClosedBook.Allowed, which can have the answer; empty for other reasons.
	Host string `json:"host,omitempty"`
}

// States of a ClosedBook.
const (
	BookClosed = "closed"
	BookOpen   = "open"
)

// Text describes b in one line.
func (b *ClosedBook) Text() string {
	if b.State == BookClosed {
		return "closed: " + strings.Join(b.Covers, ", ")
	}
	var why []string
	for _, r := range b.Reasons {
		why = append(why, r.Message)
	}
	return "open: " + strings.Join(why, "; ")
}

// BookWish says whether a run is to be a closed book. Empty means that it is not, or that another file or flag decides.
// In JSON and YAML, true stands for BookRequired and false for BookNot.
type BookWish string

// Values of BookWish.
const (
	BookRequired BookWish = "on"  // a run whose book cannot be closed is refused
	BookTried    BookWish = "try" // what is open is recorded
	BookNot      BookWish = "off"
)

// Wanted reports whether the run is to be a closed book, or as much of one as it can.
func (w BookWish) Wanted() bool { return w == BookRequired || w == BookTried }

// BookRule is what a file says of a closed book. In JSON and YAML, it is a BookWish alone, or an object.
type BookRule struct {
	// Close is empty if another file or flag decides. In an object, it is BookRequired by default.
	Close BookWish `json:"close,omitempty"`
	// Allow are hosts that the command may reach, as in the allowedDomains of a policy. A host that can have the answer
	// leaves the book open.
	Allow []string `json:"allow,omitempty"`
}

// Wanted reports whether the run is to be a closed book, or as much of one as it can.
func (r BookRule) Wanted() bool { return r.Close.Wanted() }

// IsZero reports whether r says nothing.
func (r BookRule) IsZero() bool { return r.Close == "" && len(r.Allow) == 0 }

// Or completes r by another rule where it says nothing.
func (r BookRule) Or(other BookRule) BookRule {
	if r.Close == "" {
		r.Close = other.Close
	}
	if r.Allow == nil {
		r.Allow = other.Allow
	}
	return r
}

// MarshalJSON implements [json.Marshaler].
func (r BookRule) MarshalJSON() ([]byte, error) {
	if len(r.Allow) == 0 {
		return json.Marshal(string(r.Close))
	}
	type plain BookRule
	return json.Marshal(plain(r))
}

// UnmarshalJSON implements [json.Unmarshaler].
func (r *BookRule) UnmarshalJSON(value []byte) error {
	*r = BookRule{}
	if value[0] != '{' {
		return r.Close.UnmarshalJSON(value)
	}
	type plain BookRule
	if json.Unmarshal(value, (*plain)(r), json.RejectUnknownMembers(true)) != nil {
		return errors.New("it takes close (true, false or try) and allow (a list of hosts)")
	}
	if r.Close == "" {
		r.Close = BookRequired
	}
	return nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (w *BookWish) UnmarshalJSON(value []byte) error {
	switch string(value) {
	case "true", `"on"`:
		*w = BookRequired
	case `"try"`:
		*w = BookTried
	case "false", `"off"`:
		*w = BookNot
	case `""`:
		*w = ""
	default:
		return fmt.Errorf("%.40s is not true, false or try", value)
	}
	return nil
}
