package main

import _ "github.com/assay-run/assay-run/runner/sandbox/reexec"
