package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/runner/policy"
)

// turnFlags say how a gateway's calls become turns, in a run as in serve.
type turnFlags struct {
	cli, check  string
	field, turn string
}

func (f *turnFlags) register(fs *pflag.FlagSet) {
	d := gateway.Turns{}.Effective()
	fs.StringVar(&f.cli, "cli-tool", d.CLITool, "`NAME` of the tool whose output is classified by exit code")
	fs.StringVar(&f.check, "check-tool", d.CheckTool, "`NAME` of the tool whose output is a verdict")
	fs.StringVar(&f.field, "max-field", "16K", "keep at most `SIZE` of one text in a turn")
	fs.StringVar(&f.turn, "max-turn", "256K", "keep at most `SIZE` of a turn's values together")
}

// set puts the flags that were given into t.
func (f *turnFlags) set(fs *pflag.FlagSet, t *gateway.Turns) error {
	if fs.Changed("cli-tool") {
		t.CLITool = f.cli
	}
	if fs.Changed("check-tool") {
		t.CheckTool = f.check
	}
	for _, size := range []struct {
		flag, text string
		into       *int
	}{{"max-field", f.field, &t.FieldBytes}, {"max-turn", f.turn, &t.TurnBytes}} {
		if !fs.Changed(size.flag) {
			continue
		}
		n, err := runner.ParseBytes(size.text)
		if err == nil && n < 1 {
			err = errors.New("at least 1 byte is kept")
		}
		if err != nil {
			return fmt.Errorf("--%s: %w", size.flag, err)
		}
		*size.into = int(n)
	}
	return nil
}

// loadPolicy reads a policy file, if one is named, and tells what is doubtful
// about it.
func (a *app) loadPolicy(path string) (*policy.File, error) {
	if path == "" {
		return nil, nil
	}
	file, err := policy.Load(path)
	if err != nil {
		return nil, err
	}
	for _, w := range file.Warnings {
		a.say.warning("%s: %s", path, w)
	}
	return file, nil
}
