//go:build linux

package suite

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/suite/carrier"
)

// TestAWorkspaceIsSent packs and unpacks workspaces: the copy must have the digest of the original.
func TestAWorkspaceIsSent(t *testing.T) {
	dir := t.TempDir()
	tree := filepath.Join(dir, "ws")
	sparse := filepath.Join(tree, "sparse")
	err := errors.Join(
		os.MkdirAll(filepath.Join(tree, "closed", "inner"), 0o755),
		os.WriteFile(filepath.Join(tree, "closed", "inner", "file"), []byte("text"), 0o640),
		os.WriteFile(filepath.Join(tree, "program"), nil, 0o600),
		os.Chmod(filepath.Join(tree, "program"), 0o755|os.ModeSetuid),
		os.Symlink("../away", filepath.Join(tree, "link")),
		os.WriteFile(sparse, []byte("begins"), 0o600),
		os.Truncate(sparse, 64<<20),
		os.Chmod(filepath.Join(tree, "closed"), 0o555),
		os.Symlink("ws", filepath.Join(dir, "named")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(filepath.Join(tree, "closed"), 0o755) }()
	for _, from := range []string{"ws", "named"} {
		want, err := digestTree(filepath.Join(dir, from))
		if err != nil {
			t.Fatal(err)
		}
		var sent bytes.Buffer
		if err := pack(&sent, filepath.Join(dir, from), want); err != nil {
			t.Fatal(err)
		}
		if sent.Len() > 1<<20 {
			t.Errorf("%s: a hole is sent as %d bytes", from, sent.Len())
		}
		to := filepath.Join(t.TempDir(), "to")
		if err := unpackSent(&sent, to); err != nil {
			t.Fatal(err)
		}
		if got, err := digestTree(filepath.Join(to, sentTree)); err != nil || got != want {
			t.Errorf("%s: it has the digest %s, want %s, %v", from, got, want, err)
		}
		var s unix.Stat_t
		if err := unix.Stat(filepath.Join(to, sentTree, "sparse"), &s); err != nil || s.Blocks > 1<<10 {
			t.Errorf("the hole has %d blocks, %v", s.Blocks, err)
		}
		_ = os.Chmod(filepath.Join(to, sentTree, "closed"), 0o755)
	}
	err = pack(&bytes.Buffer{}, tree, "sha256:0")
	if err == nil || !strings.Contains(err.Error(), "has changed since the suite began") {
		t.Errorf("another workspace is sent: %v", err)
	}
}

// sender is a worker's client that delivers workspaces.
type sender struct {
	client
	sends []func(io.Writer) error // one for each call of Workspace
}

func (s *sender) Ask(context.Context, any, any) error { return nil }

func (s *sender) Workspace(_ context.Context, _ string, w io.Writer) error {
	send := s.sends[0]
	s.sends = s.sends[1:]
	return send(w)
}

// smallTree creates a workspace with one file.
func smallTree(t *testing.T) (tree, digest string) {
	t.Helper()
	tree = t.TempDir()
	if err := os.WriteFile(filepath.Join(tree, "file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	digest, err := digestTree(tree)
	if err != nil {
		t.Fatal(err)
	}
	return tree, digest
}

// TestAWorkspaceIsFetched fetches a workspace that is only complete at the third call, and one that cannot be unpacked,
// which must not be fetched again.
func TestAWorkspaceIsFetched(t *testing.T) {
	tree, digest := smallTree(t)
	nothing := func(io.Writer) error { return carrier.ErrNoWorkspace }
	some := func(w io.Writer) error {
		_, err := w.Write([]byte{0x28, 0xb5, 0x2f, 0xfd}) // the first bytes of a zstd file
		return errors.Join(err, carrier.ErrNoWorkspace)
	}
	all := func(w io.Writer) error { return pack(w, tree, digest) }
	garbage := func(w io.Writer) error {
		var err error
		for err == nil {
			_, err = w.Write([]byte("no compressed file"))
		}
		return err
	}
	work := &tryWork{WorkspaceDigest: digest}
	w := &Worker{Client: &sender{sends: []func(io.Writer) error{nothing, some, all}}, joined: &Welcome{}}
	to := filepath.Join(t.TempDir(), sentName(digest))
	if err := w.fetch(t.Context(), work, to); err != nil {
		t.Error(err)
	}
	if got, err := digestTree(filepath.Join(to, sentTree)); err != nil || got != digest {
		t.Errorf("it has the digest %s, want %s, %v", got, digest, err)
	}
	w.Client = &sender{sends: []func(io.Writer) error{garbage}}
	if err := w.fetch(t.Context(), work, filepath.Join(t.TempDir(), "to")); err == nil {
		t.Error("what cannot be unpacked is taken")
	}
}

// TestAWorkspaceIsFetchedOnce has a worker with another workspace at the path. The one that it fetches must serve later
// tries too, unless an agent changed it.
func TestAWorkspaceIsFetchedOnce(t *testing.T) {
	tree, digest := smallTree(t)
	fetched := &sender{}
	w := &Worker{Client: fetched, Dir: t.TempDir(), joined: &Welcome{}, tries: map[string]*activeTry{"token": {}}}
	to := filepath.Join(t.TempDir(), "to")
	for _, change := range []bool{true, false, true} {
		if change {
			fetched.sends = append(fetched.sends, func(w io.Writer) error { return pack(w, tree, digest) })
			kept := filepath.Join(w.sentDir(), sentName(digest), sentTree, "file")
			if err := os.WriteFile(kept, []byte("other"), 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
		// An earlier workspace may be there.
		if err := errors.Join(os.MkdirAll(to, 0o700), os.WriteFile(filepath.Join(to, "more"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := w.copyFetched(t.Context(), &tryWork{Token: "token", WorkspaceDigest: digest}, to); err != nil {
			t.Fatal(err)
		}
		if got, err := digestTree(to); err != nil || got != digest {
			t.Errorf("the copy has the digest %s, want %s, %v", got, digest, err)
		}
		if len(fetched.sends) > 0 {
			t.Error("what was changed is not fetched again")
		}
	}
}
