//go:build !unix

package strict

const nonblock = 0
