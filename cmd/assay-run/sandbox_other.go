//go:build !linux

package main

import "github.com/spf13/cobra"

// linuxOnly are the commands that only Linux has: none here.
func (a *app) linuxOnly() []*cobra.Command { return nil }
