//go:build !linux

package main

func withoutBPF() {}
