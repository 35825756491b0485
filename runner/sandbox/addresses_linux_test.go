package sandbox

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// TestProgramsOnTheCgroup lets the programs do the network namespace's work: with one they see the same denials,
// without one they enforce them.
func TestProgramsOnTheCgroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may attach BPF programs to a cgroup")
	}
	const script = `"$ATTACK" udp 192.0.2.1:53; "$ATTACK" tcp '[::ffff:169.254.169.254]:80'; "$ATTACK" listen 127.0.0.1:0 || exit 9; "$ATTACK" listen 0.0.0.0:0`
	for _, c := range []struct {
		name         string
		noNamespaces bool
		code         int
		network      string
		blocked      []string
	}{
		{"with namespaces", false, 0, Enforced, []string{"connect 192.0.2.1:53", "connect 169.254.169.254:80"}},
		{"without", true, 1, Degraded,
			[]string{"connect 192.0.2.1:53", "connect 169.254.169.254:80", "bind 0.0.0.0:0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			session, err := cgroup.Probe().NewSession(fmt.Sprintf("sandbox-test-%d", os.Getpid()), cgroup.Limits{})
			if err != nil {
				t.Skipf("a cgroup: %v", err)
			}
			defer session.Remove()
			j := shell(t, script)
			j.Env = []string{"ATTACK=" + attack(t, scratch(t))}
			j.Settings.OnUnavailable = sandboxfile.Degrade
			j.NoNamespaces, j.Cgroup = c.noNamespaces, session.Agent().Path()
			o := everybody[0].run(t, j)
			if o.Err != "" || o.Code != c.code || o.layer(LayerCgroupBPF).State != Enforced ||
				o.layer(LayerNetwork).State != c.network {
				t.Errorf("%+v\n%s", o, o.out)
			}
			if !slices.Equal(o.Blocked, c.blocked) {
				t.Errorf("blocked %q, want %q\n%s", o.Blocked, c.blocked, o.out)
			}
		})
	}
}
