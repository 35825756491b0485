// Package unixdiag lists the unix sockets that are bound to a path, with the inodes of their files where the kernel's
// socket diagnostics tell them.
package unixdiag
