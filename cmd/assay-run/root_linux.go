package main

import _ "github.com/assay-run/assay-run/runner/sandbox/reexec"

// linuxOnly returns the subcommands that only Linux has.
func linuxOnly() []subcommand {
	return []subcommand{{"sandbox", sandboxCommand}, {"landrun", landrunCommand}, {"attach", attachCommand}}
}
