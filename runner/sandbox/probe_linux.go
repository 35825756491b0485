package sandbox

import (
	"fmt"
	"os"
	"os/exec"

	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// Probe builds every layer in a process that starts nothing, and reports the result of each. cgroup is an empty
// cgroup2 directory for the cgroup programs, or empty if there is none. Probe leaves nothing behind.
func Probe(cgroup string) ([]Layer, error) {
	settings := sandboxfile.Settings{Mode: sandboxfile.WorkspaceWrite, OnUnavailable: sandboxfile.Degrade}
	p, err := Resolve(&settings, Context{Dir: "/tmp", Env: os.Environ()})
	if err != nil {
		return nil, err
	}
	s, err := New(p, Options{Cgroup: cgroup})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	s.probe = true
	cmd, err := s.Start(&exec.Cmd{Path: "/proc/self/exe", Dir: "/"}, (*exec.Cmd).Start, false)
	if cmd != nil {
		_ = cmd.Wait()
	}
	if layers := s.Layers(); len(layers) > 0 {
		if cgroup == "" {
			layers = append(layers, Layer{Layer: LayerCgroupBPF, State: Unavailable,
				Reason: "runs have no cgroup v2 here"})
		}
		return layers, nil
	}
	return nil, err
}

// Detail describes the version of a layer, if it has one.
func Detail(l Layer) string {
	if l.Layer == LayerLandlock {
		if abi, err := LandlockABI(); err == nil {
			return fmt.Sprintf("ABI %d", abi)
		}
	}
	return ""
}
