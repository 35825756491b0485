package main

import (
	"runtime/debug"

	"github.com/assay-run/assay-run/schema"
)

// release is set by the linker for released builds.
var release = ""

// version is the release, or the module version or revision of a build from
// source.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

// printDocument writes a JSON document to stdout.
func (a *app) printDocument(v any) error {
	data, err := schema.Document(v)
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(schema.AppendForTerminal(nil, data))
	return err
}
