package main

import "github.com/spf13/cobra"

// contractRunning are the commands of contract that run others: none here.
func (a *app) contractRunning() []*cobra.Command { return nil }
