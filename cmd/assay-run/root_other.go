//go:build !linux

package main

// linuxOnly returns the subcommands that only Linux has: none here.
func linuxOnly() []subcommand { return nil }
