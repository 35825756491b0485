//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

func TestSelfTestEarnsEveryHook(t *testing.T) {
	s := observe(t, Config{SelfTest: true})
	s.run(s.command("/bin/true"))
	s.end()
	for i, h := range s.report.Hooks {
		if hooks[i].selfTested && !h.SelfTested {
			t.Errorf("%s was not seen", h.Name)
		}
	}
	if len(s.report.Reasons) != 0 {
		t.Errorf("reasons: %+v", s.report.Reasons)
	}
	if s.report.SelfTest == 0 {
		t.Error("no record of the self-test was counted")
	}
	for _, e := range s.events {
		if e.Kind == schema.KindExec && e.Filename() != "/bin/true" || e.Kind == schema.KindFlow {
			t.Errorf("the self-test leaked: %s", describe(e))
		}
	}
	if left, _ := filepath.Glob(filepath.Join(s.path, "selftest-*")); len(left) > 0 {
		t.Errorf("the self-test's cgroup is still there: %s", left)
	}
	if t.Failed() {
		t.Log(s.dump())
	}
	t.Logf("self-test took %d ns", s.report.SelfTestNS)
}

// A program that is attached and does nothing is found, whichever it is.
func TestSelfTestFindsASilentProgram(t *testing.T) {
	if _, err := Probe(); errors.Is(err, ErrNotSupported) && os.Geteuid() != 0 {
		t.Skip(err)
	}
	serves := map[string][]string{} // the names of the hooks that each program serves
	for _, h := range hooks {
		if h.selfTested {
			serves[h.progs[0]] = append(serves[h.progs[0]], h.name)
		}
	}
	// A connection is followed from the call that begins it.
	serves["connect4"] = append(serves["connect4"], hooks[HookTCP].name)
	for name, silent := range serves {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "forked" && name != "sendmsg6" {
				t.Skip("each takes as long as the verifier") // half a minute under emulation
			}
			l, err := prepareAlone(schema.MinKernelBuffer)
			if err != nil {
				t.Fatal(err)
			}
			if as, ok := cgroupPrograms[name]; ok {
				_ = l.progs[name].Close()
				l.progs[name], err = ebpf.NewProgram(&ebpf.ProgramSpec{
					Type: ebpf.CGroupSockAddr, AttachType: as,
					Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()},
				})
			} else {
				err = l.links[name].Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			ready.mu.Lock()
			ready.next, ready.ring = make(chan preloaded, 1), schema.MinKernelBuffer
			ready.next <- preloaded{loaded: l}
			ready.mu.Unlock()
			o, err := Open(t.Context(), Config{CgroupPath: newCgroup(t), RingBytes: schema.MinKernelBuffer,
				SelfTest: true})
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			var said []string
			for _, r := range o.Report().Reasons {
				if hook, ok := strings.CutSuffix(strings.TrimPrefix(r.Message, "hook "),
					" did not fire in the self-test"); ok && r.Code == CodeHookSilent {
					said = append(said, hook)
				}
			}
			if d := cmp.Diff(silent, said); d != "" {
				t.Error(d)
			}
		})
	}
}
