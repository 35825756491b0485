//go:build !unix

package index

import "os"

// private reports true: the rights of the folder decide here, which its mode does not tell.
func private(os.FileInfo) bool { return true }
