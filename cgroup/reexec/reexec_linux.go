package reexec

import "github.com/assay-run/assay-run/cgroup/internal/helper"

func init() { helper.Enter() }
