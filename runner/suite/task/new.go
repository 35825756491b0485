package task

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// template are the files of a new task: it asks for a file, and its solution passes its tests.
var template = []struct {
	name, text string
	mode       fs.FileMode
}{
	{"task.toml", `schema_version = "1.4"

[agent]
timeout_sec = 900.0

[verifier]
timeout_sec = 300.0

[environment]
build_timeout_sec = 600.0
cpus = 1
memory_mb = 2048
network_mode = "none"

# Keys of assay-suite, which Harbor ignores: see docs/harbor.md.
[metadata.assay]
protected = []
`, 0o644},
	{"instruction.md", "Write the number 42 to `/work/answer.txt`.\n", 0o644},
	{Environment + "/Dockerfile", "FROM debian:stable-slim\nWORKDIR /work\n", 0o644},
	{Test, `#!/bin/sh
# What this writes to reward.txt is the reward: at least 1 passes.
if [ "$(cat /work/answer.txt)" = 42 ]; then
	echo 1 >/logs/verifier/reward.txt
else
	echo 0 >/logs/verifier/reward.txt
fi
`, 0o755},
	{Solve, "#!/bin/sh\necho 42 >/work/answer.txt\n", 0o755},
}

// New writes the folder of a new task. dir must not exist.
func New(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, f := range template {
		at := filepath.Join(dir, f.name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, []byte(f.text), f.mode); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	return nil
}
