package console

import (
	"runtime/debug"
)

// number is the version that this source is, or is on the way to. Makefile reads it.
const number = "0.1.0"

// Version is release, which the linker sets in released builds, else number with the
// revision of a build from source.
func Version(release string) string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return number + "+devel"
	}
	if info.Main.Version == "v"+number { // go install ...@v0.1.0
		return number
	}
	revision, changed := "devel", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 7:
			revision = s.Value[:7]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = ".dirty"
		}
	}
	return number + "+" + revision + changed
}
