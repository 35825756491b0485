//go:build !unix

package index

import "os"

// private leaves it to the rights of the folder, which its mode does not tell here.
func private(os.FileInfo) bool { return true }
