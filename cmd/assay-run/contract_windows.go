package main

import "github.com/spf13/cobra"

// contractRunning returns the subcommands of contract that run other programs: none on Windows.
func contractRunning(*app) []*cobra.Command { return nil }
