//go:build !linux

package engine

func into(parent string) place { return place{parent: parent} }
