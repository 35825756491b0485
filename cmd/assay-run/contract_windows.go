package main

import "github.com/spf13/cobra"

// contractRunning are the commands of contract that run others: none here.
func contractRunning(*app) []*cobra.Command { return nil }
