package archive

import "os"

// No run is recorded on Windows, so a spool there is a copy of one.
func onlyOurs(os.FileInfo) bool { return true }

func foreign(string) error { return nil }
