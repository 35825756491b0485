//go:build linux && (amd64 || arm64)

package kernel

import (
	"testing"
	"time"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/assay-run/assay-run/bpf"
)

func TestPhases(t *testing.T) {
	if os.Getenv("PHASES") == "" { t.Skip() }
	t0 := time.Now()
	step := func(n string) { t.Logf("%s %v", n, time.Since(t0)); t0 = time.Now() }
	spec, _ := bpf.LoadAssay()
	step("elf")
	btf.LoadKernelSpec()
	step("btf")
	l := &loaded{failed: map[string]error{}}
	l.cpus, _ = ebpf.PossibleCPU()
	l.configure(spec, Config{}, 1)
	step("configure")
	for n, m := range spec.Maps {
		mm, err := ebpf.NewMap(m)
		if err != nil { t.Log(n, err); continue }
		mm.Close()
		step("map " + n)
	}
	l.create(spec)
	step("create")
	l.coll.Close()
	step("close")
}
