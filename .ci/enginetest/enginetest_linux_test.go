package enginetest

import "testing"

func TestEnginesRunAContainer(t *testing.T) {
	for _, e := range []*Engine{Docker(t), Podman(t), Rootless(t)} {
		if got := e.Run("run", "--rm", "--network=none", Image, "cat",
			"/etc/group"); got != "root:x:0:\nagent:x:1000:" {
			t.Errorf("%s: %q", e.Program, got)
		}
	}
}
