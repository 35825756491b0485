package runner

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema/agents"
)

// wear sets the command's variables and arguments, and has it started by "assay-run hook", which writes the files, if
// there are any. Call it when the command's environment is complete.
func wear(o agents.Outfit, cmd *exec.Cmd) error {
	value := func(name string) (string, bool) { return lookupEnv(cmd.Env, name) }
	worn, err := o.Wear(value)
	if err != nil {
		return err
	}
	cmd.Env = append(cmd.Env, worn.Env...)
	if program := o.Recipe.Program(cmd.Args); program >= 0 {
		cmd.Args = slices.Insert(slices.Clone(cmd.Args), program+1, worn.Arguments...)
	}
	if worn.Setup == "" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd.Path, cmd.Args = self, append([]string{"assay-run", "hook", o.Recipe.Name, "--"}, cmd.Args...)
	path, _ := value("PATH")
	// Hooks of the agent call assay-run by its name.
	if found, err := lookPath("assay-run", cmd.Dir, cmd.Env); err != nil || !sameFile(found, self) {
		path = strings.TrimSuffix(filepath.Dir(self)+":"+path, ":")
	}
	cmd.Env = append(cmd.Env, "PATH="+path, agents.EnvSetup+"="+worn.Setup)
	return nil
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
