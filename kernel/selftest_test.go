//go:build linux && (amd64 || arm64)

package kernel

import (
	"path/filepath"
	"testing"
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
		if string(e.Filename) != "" && string(e.Filename) != "/bin/true" || e.Kind == KindTraffic {
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
