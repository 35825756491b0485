//go:build !unix

package gateway

import "os"

func lock(*os.File) bool { return true }

const noFollow = 0
