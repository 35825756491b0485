//go:build !linux

package main

import "github.com/spf13/cobra"

// containing are the commands that contain without recording: none here.
func (a *app) containing() []*cobra.Command { return nil }
