package sandbox

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// documented is what a profile's comments say that it opens, by verb.
func documented(t *testing.T, f *sandboxfile.ProfileFile) map[string][]string {
	t.Helper()
	said := map[string][]string{}
	for line := range strings.Lines(f.Text) {
		words := strings.Fields(strings.TrimPrefix(line, "#"))
		if len(words) == 0 || !strings.HasPrefix(line, "# ") ||
			!slices.Contains([]string{"writes", "hides", "connects"}, words[0]) {
			continue
		}
		if len(words) < 3 {
			t.Errorf("%s does not say what it is for", strings.TrimSpace(line))
		}
		said[words[0]] = append(said[words[0]], words[1])
	}
	if len(said) == 0 {
		t.Fatalf("the comments list nothing:\n%s", f.Text)
	}
	return said
}

// effective is the policy with or without a profile, for a user whose home has everything that is named.
func effective(t *testing.T, s sandboxfile.Settings, dir, home string) *Profile {
	t.Helper()
	all := sandboxfile.Compose(sandboxfile.Settings{Mode: sandboxfile.WorkspaceWrite,
		Network: &sandboxfile.Network{Mode: sandboxfile.NetAllowlist}}, s)
	p, err := Resolve(&all, Context{Dir: dir, Home: home})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestProfilesOpenWhatTheySay compares the policy in effect with and without a profile, and compares the difference
// with the list in the profile's comments.
func TestProfilesOpenWhatTheySay(t *testing.T) {
	for _, name := range sandboxfile.Builtins() {
		t.Run(name, func(t *testing.T) {
			f, err := sandboxfile.Builtin(name)
			if err != nil {
				t.Fatal(err)
			}
			said := documented(t, f)
			base := scratch(t)
			dir, home := filepath.Join(base, "work"), filepath.Join(base, "home")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for _, path := range slices.Concat(said["writes"], said["hides"]) {
				if err := os.MkdirAll(filepath.Join(home, strings.TrimPrefix(path, "~/")), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			want := effective(t, sandboxfile.Settings{}, dir, home)
			for i, path := range said["writes"] {
				want.Write = append(want.Write,
					Path{filepath.Join(home, path[2:]), fmt.Sprintf("filesystem.allowWrite[%d]", i)})
			}
			for i, path := range said["hides"] {
				want.DenyRead = slices.Insert(want.DenyRead, i,
					Path{filepath.Join(home, path[2:]), fmt.Sprintf("filesystem.denyRead[%d]", i)})
			}
			want.Network.AllowedDomains = said["connects"]
			got := effective(t, f.Settings, dir, home)
			want.sockets = got.sockets // those of the host change
			if err := want.settle(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(asJSON(t, want), asJSON(t, got)); diff != "" {
				t.Errorf("the comments (-) and the policy in effect (+) differ:\n%s", diff)
			}
			besideAddresses(t, f, said["connects"])
			besidePaths(t, f, said, home)
		})
	}
}

// besideAddresses asks the proxy's rules about addresses that are nearly allowed.
func besideAddresses(t *testing.T, f *sandboxfile.ProfileFile, connects []string) {
	t.Helper()
	proxy, err := newProxy(NetProfile{AllowedDomains: f.Settings.Network.AllowedDomains}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range connects {
		host, text, err := net.SplitHostPort(address)
		port, perr := strconv.Atoi(text)
		if err != nil || perr != nil {
			t.Fatalf("%q is not a host and a port", address)
		}
		if _, ok, _ := proxy.decide(host, port); !ok {
			t.Errorf("%s is refused", address)
		}
		_, parent, _ := strings.Cut(host, ".")
		for _, beside := range []string{"x." + host, "x" + host, host + ".example", parent} {
			if _, ok, _ := proxy.decide(beside, port); ok &&
				!slices.Contains(connects, net.JoinHostPort(beside, text)) {
				t.Errorf("%s allows %s too", address, beside)
			}
		}
		if _, ok, _ := proxy.decide(host, port+1); ok {
			t.Errorf("%s allows port %d too", address, port+1)
		}
	}
}

// besidePaths makes a run write to what the profile opens, next to it, and above it, and read what it hides.
func besidePaths(t *testing.T, f *sandboxfile.ProfileFile, said map[string][]string, home string) {
	t.Helper()
	w := everybody[0]
	if os.Geteuid() != 0 {
		w = who{name: "user", uid: os.Geteuid()}
	}
	var script strings.Builder
	var want []string
	try := func(path string, allowed bool) {
		fmt.Fprintf(&script, "touch '%s/new' 2>/dev/null && echo 'yes %s' || echo 'no %s'\n", path, path, path)
		want = append(want, map[bool]string{true: "yes ", false: "no "}[allowed]+path)
	}
	for _, path := range said["writes"] {
		path = filepath.Join(home, path[2:])
		if err := os.MkdirAll(path+".beside", 0o755); err != nil {
			t.Fatal(err)
		}
		try(path, true)
		try(path+".beside", false)
		try(filepath.Dir(path), false)
	}
	for _, path := range said["hides"] {
		path = filepath.Join(home, path[2:])
		fmt.Fprintf(&script, "ls '%s' >/dev/null 2>&1 && echo 'yes %s' || echo 'no %s'\n", path, path, path)
		want = append(want, "no "+path)
	}
	j := shell(t, script.String())
	j.Settings, j.Home = sandboxfile.Compose(j.Settings, f.Settings), home
	j.Settings.Home = sandboxfile.HomeReal // a private one can be written everywhere
	o := w.run(t, j)
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(o.out), "\n")); diff != "" || o.Err != "" {
		t.Errorf("%s: what may be written, and what may (-want +got):\n%s", o.Err, diff)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
