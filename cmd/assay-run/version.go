package main

import (
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
)

// release is set by the linker for released builds.
var release = ""

func version() string { return console.Version(release) }

// printDocument writes a JSON document to stdout.
func (a *app) printDocument(v any) error { return schema.PrintDocument(a.stdout, v) }
