//go:build !linux

package main

func limits(*bench, string, string) []single { return nil }
