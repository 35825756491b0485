package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/assay-run/assay-run/cgroup/tree"
	"github.com/assay-run/assay-run/runner/engine"
)

// tree opens the cgroup that the flags name. It calls stop later if the container will not
// start, or starts in another cgroup.
func (f *attachFlags) tree(ctx context.Context, stop context.CancelCauseFunc) (*tree.Tree, error) {
	named := 0
	for _, given := range []bool{f.container != "", f.cgroup != "", f.pid != 0} {
		if given {
			named++
		}
	}
	switch {
	case named == 0:
		return nil, errors.New("no container, cgroup or process was named")
	case named > 1:
		return nil, errors.New("only one of --container, --cgroup and --pid can be used")
	case f.pid != 0:
		path, err := tree.Of(f.pid)
		if err != nil {
			return nil, err
		}
		return tree.Open(path)
	case f.cgroup != "":
		return tree.Open(f.cgroup)
	}
	if f.engine == engine.Kubernetes {
		return nil, errors.New("--engine kubernetes needs --watch")
	}
	e, err := engine.Find(f.engine)
	if err != nil {
		return nil, err
	}
	c, err := e.Container(ctx, f.container)
	if err != nil {
		return nil, err
	}
	t, err := e.Tree(ctx, c)
	if err != nil {
		return nil, err
	}
	if c.New {
		go e.Follow(ctx, c, t, stop)
	}
	f.spec.Labels = e.Labels(c)
	return t, nil
}

// commandLine is the command in run.json: assay-run attach itself, with the flags that say
// what to record.
func (f *attachFlags) commandLine(command []string) []string {
	line := []string{"assay-run", "attach"}
	if f.watch {
		line = append(line, "--watch", "--label", f.label)
	}
	if f.engine == engine.Kubernetes {
		line = append(line, "--engine", f.engine)
	}
	if f.namespace != "" {
		line = append(line, "--namespace", f.namespace)
	}
	if f.container != "" {
		line = append(line, "--container", f.container)
	}
	if f.cgroup != "" {
		line = append(line, "--cgroup", f.cgroup)
	}
	if f.pid != 0 {
		line = append(line, "--pid", strconv.Itoa(f.pid))
	}
	if f.until != "" {
		line = append(line, "--until", f.until)
	}
	if len(command) > 0 {
		line = append(append(line, "--"), command...)
	}
	return line
}
