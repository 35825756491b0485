package reexec

import "github.com/assay-run/assay-run/runner/sandbox/internal/shim"

func init() { shim.Enter() }
