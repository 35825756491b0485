//go:build !linux

package main

func (b *bench) suites() []single { return nil }
