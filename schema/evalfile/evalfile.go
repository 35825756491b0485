// Package evalfile reads evaluation files: what an agent under evaluation must not do, in YAML. An error
// lists all faults of a file, each with its line.
package evalfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// Bounds of a file.
const (
	maxBytes   = 256 << 10
	maxGlobs   = 1000 // of one key
	maxServers = 64
)

// ErrFile is wrapped by every error of an evaluation file.
var ErrFile = errors.New("bad evaluation file")

// Load reads the file at path, which must be a regular file. The document has no run id.
func Load(path string) (*schema.Evaluation, error) {
	data, err := config.ReadFile(path, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	doc, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFile, path, err)
	}
	return doc, nil
}

// Parse reads the text of an evaluation file.
func Parse(data []byte) (*schema.Evaluation, error) {
	if len(data) > maxBytes {
		return nil, fmt.Errorf("larger than %d bytes", maxBytes)
	}
	var d schema.EvaluationDefinition
	doc, err := config.DecodeDocument(data, config.YAML, &d)
	if doc == nil {
		return nil, err
	}
	c := &checker{doc: doc, faults: []error{err}, typed: err == nil}
	for _, of := range []struct {
		key  string
		list []string
	}{{"workspace", d.Workspace}, {"hidden", d.Hidden}, {"protected", d.Protected},
		{"watched", d.Watched}, {"reward", d.Reward}, {"others", d.Others}, {"deliverables", d.Deliverables}} {
		c.globs(of.list, of.key)
		c.paths(of.list, of.key)
	}
	c.globs(d.Forbidden.Hosts, "forbidden", "hosts")
	c.globs(d.Forbidden.Packages, "forbidden", "packages")
	c.globs(d.Forbidden.Repositories, "forbidden", "repositories")
	for i, w := range d.Workspace {
		if w = strings.TrimPrefix(w, schema.InContainer); w != "" && !path.IsAbs(w) {
			c.fault(fmt.Sprintf("%.80q is not absolute", w), "workspace", strconv.Itoa(i))
		}
	}
	if t := d.Tests; c.given(t, "tests") {
		if d.Tests = path.Clean(t); d.Tests == "/" || d.Tests == "." || strings.HasPrefix(d.Tests, "..") ||
			strings.ContainsRune(t, 0) {
			c.fault(fmt.Sprintf("%.80q is neither a directory in the workspace nor an absolute path", t), "tests")
		}
	}
	for i, s := range d.Servers {
		if s.Port < 1 || s.Port > 65535 {
			c.fault(fmt.Sprintf("the port is %d, want 1 to 65535", s.Port), "servers", strconv.Itoa(i))
		}
	}
	if n := len(d.Servers); n > maxServers || n == 0 && c.typed && c.doc.Has("servers") {
		c.fault(fmt.Sprintf("it has %d servers, want 1 to %d", n, maxServers), "servers")
	}
	for i, host := range d.ClosedBook.Allow {
		if _, err := sandboxfile.ParseDomain(host, false); err != nil {
			c.fault(err.Error(), "closed_book", "allow", strconv.Itoa(i))
		}
	}
	d.StartCommit = strings.ToLower(d.StartCommit)
	if s := d.StartCommit; c.given(s, "start_commit") && (len(s) < 7 || len(s) > 64 ||
		strings.Trim(s, "0123456789abcdef") != "") {
		c.fault(fmt.Sprintf("%.80q is not a commit: write 7 to 64 hex digits, in quotes", s), "start_commit")
	}
	if _, known := agents.Of(d.Agent); c.given(d.Agent, "agent") && !known {
		c.fault(fmt.Sprintf("%.80q is not known; the agents are %s", d.Agent, strings.Join(agents.Names(), ", ")),
			"agent")
	}
	if err := errors.Join(c.faults...); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	return &schema.Evaluation{Schema: schema.EvaluationV0, Evaluation: d,
		Digest: "sha256:" + hex.EncodeToString(sum[:])}, nil
}

// checker collects the faults of a file whose values have the right types, or some of them.
type checker struct {
	doc    *config.Document
	faults []error
	typed  bool // all values have the right types
}

func (c *checker) fault(problem string, path ...string) {
	c.faults = append(c.faults, c.doc.Fault(problem, path...))
}

// given reports whether a text has a value. An empty one is a fault.
func (c *checker) given(text string, path ...string) bool {
	if text == "" && c.typed && c.doc.Has(path...) {
		c.fault("it is empty; omit the key", path...)
	}
	return text != ""
}

// globs checks a list of globs.
func (c *checker) globs(list []string, path ...string) {
	if n := len(list); n > maxGlobs || n == 0 && c.typed && c.doc.Has(path...) {
		c.fault(fmt.Sprintf("it has %d globs, want 1 to %d", n, maxGlobs), path...)
		return
	}
	for i, glob := range list {
		at := append(slices.Clone(path), strconv.Itoa(i))
		if !c.given(glob, at...) {
			continue
		}
		if err := config.CheckGlob(glob); err != nil {
			c.fault(err.Error(), at...)
		}
	}
}

// paths checks a list of globs of paths, and writes them as the kernel names files.
func (c *checker) paths(list []string, key string) {
	for i, glob := range list {
		file, inside := strings.CutPrefix(glob, schema.InContainer)
		clean := path.Clean(file)
		switch {
		case glob == "": // told by globs
		case strings.ContainsRune(glob, 0):
			c.fault(fmt.Sprintf("%.80q holds a NUL", glob), key, strconv.Itoa(i))
		case clean == ".." || strings.HasPrefix(clean, "../"):
			c.fault(fmt.Sprintf("%.80q leaves the workspace; write an absolute path", glob), key, strconv.Itoa(i))
		case inside && !path.IsAbs(file):
			c.fault(fmt.Sprintf("%.80q has no absolute path after %s", glob, schema.InContainer), key, strconv.Itoa(i))
		default:
			list[i] = glob[:len(glob)-len(file)] + clean
		}
	}
}
