package enginetest

import "testing"

// A container ends at once, perhaps before a client that shows its output is there: the engine's log has all of it.
func TestEnginesRunAContainer(t *testing.T) {
	for _, e := range []*Engine{Docker(t), Podman(t), Rootless(t)} {
		id := e.Run("run", "--detach", "--network=none", Image, "cat", "/etc/group")
		if status := e.Run("wait", id); status != "0" {
			t.Errorf("%s: exit status %s", e.Program, status)
		}
		if got := e.Run("logs", id); got != "root:x:0:\nagent:x:1000:" {
			t.Errorf("%s: %q", e.Program, got)
		}
	}
}
