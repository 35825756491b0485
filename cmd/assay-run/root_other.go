//go:build !linux

package main

// linuxOnly are the commands that only Linux has: none here.
func linuxOnly() []subcommand { return nil }
