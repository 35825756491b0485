package enginetest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// configure writes the configuration of a Podman whose storage is in dir, and returns the
// variables that name it. more is about containers.
func configure(t testing.TB, dir, more string) []string {
	t.Helper()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	backend := "cni"
	if _, err := os.Stat("/usr/lib/podman/netavark"); err == nil { // Podman 5 knows no other
		backend = "netavark"
		write(Network+".json", fmt.Sprintf(`{"name": %q, "id": "%064x", "driver": "bridge",
"network_interface": "assay0", "internal": true, "created": "2026-01-01T00:00:00Z", "ipam_options": {"driver": "none"}}`, Network, 1))
	} else {
		write(Network+".conflist",
			fmt.Sprintf(`{"cniVersion": "0.4.0", "name": %q, "plugins": [{"type": "loopback"}]}`, Network))
	}
	return []string{
		"CONTAINERS_STORAGE_CONF=" +
			write("storage.conf", fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n",
				dir+"/data", dir+"/run")),
		"CONTAINERS_CONF=" + write("containers.conf", fmt.Sprintf(`[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "none"
%s
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = %q
runtime = "runc"
[network]
network_backend = %q
network_config_dir = %q
`, more, dir+"/tmp", backend, dir)),
	}
}
