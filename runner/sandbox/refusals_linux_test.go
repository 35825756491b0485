package sandbox

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/audittest"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// TestRefusals reads from the host's audit what Landlock alone refused, without namespaces.
func TestRefusals(t *testing.T) {
	w := everybody[0]
	w.can(t)
	if abi, err := LandlockABI(); err != nil || abi < logABI {
		t.Skipf("Landlock does not tell the audit: version %d, %v", abi, err)
	}
	audittest.On(t)
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	abstract, err := net.Listen("unix", "@"+filepath.Base(scratch(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	j := shell(t, fmt.Sprintf(
		`cat ../denied/key; cat '../denied/a key'; echo x > "$OUT/f"; echo x > "$OUT/new"; ../denied/run; "$ATTACK" abstract %s; "$ATTACK" kill %d; cat ../denied/key; true`, abstract.Addr().String()[1:], os.Getpid()))
	top := filepath.Dir(j.Dir)
	out := filepath.Join(top, "out")
	for _, dir := range []string{out, top + "/denied"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{out + "/f", top + "/denied/key", top + "/denied/a key", top + "/denied/run"} {
		if err := os.WriteFile(f, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	j.Env = []string{"OUT=" + out, "ATTACK=" + attack(t, top)}
	j.Settings.OnUnavailable, j.NoNamespaces, j.Audit = sandboxfile.Degrade, true, true
	j.Settings.Filesystem = &sandboxfile.Filesystem{DenyRead: []string{"../denied"}}
	j.Settings.Network = &sandboxfile.Network{Mode: sandboxfile.NetNone}
	o := w.run(t, j)
	if o.Err != "" || o.Code != 0 || o.Lost != 0 || o.Unsure {
		t.Fatalf("%+v\n%s", o, o.out)
	}
	times := map[string]int{}
	for _, r := range o.Refused {
		times[r.Op+" "+r.Target]++
		if r.Time == 0 {
			t.Errorf("%+v has no time", r)
		}
	}
	for _, want := range []string{
		"read " + top + "/denied/key", "read " + top + "/denied/a key", "write " + out + "/f", "write " + out + "/",
		"exec " + top + "/denied/run",
		"connect unix:" + abstract.Addr().String(),
		fmt.Sprintf("signal process %d (%s)", os.Getpid(), strings.TrimSpace(string(comm))),
	} {
		if times[want] != 1 {
			t.Errorf("%s was told %d times of %v", want, times[want], times)
		}
	}
}
