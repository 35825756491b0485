//go:build !linux

package main

func answer([]string)   { panic("the notify tier is for Linux") }
func answered([]string) { panic("the notify tier is for Linux") }
