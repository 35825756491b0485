//go:build !unix

package evalfile

const nonblock = 0
