//go:build !unix

package policy

const nonblock = 0
