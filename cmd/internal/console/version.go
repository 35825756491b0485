package console

import (
	"runtime/debug"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// number is the version that this source is, or is on the way to. Makefile reads it.
const number = "0.1.0"

// Version is release, which the linker sets in released builds, else the version of the tag that "go install" built, or
// number with the revision of the source.
func Version(release string) string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return number + "+devel"
	}
	return ofModule(info.Main.Version)
}

// ofModule returns the program's version for the version of its module. That is a tag's, or a pseudo-version with the
// revision (go.dev/ref/mod#pseudo-versions), or "(devel)" without version control.
func ofModule(v string) string {
	if revision, err := module.PseudoVersionRev(v); err == nil {
		changed := ""
		if strings.HasSuffix(v, "+dirty") {
			changed = ".dirty"
		}
		return number + "+" + revision[:min(len(revision), 7)] + changed
	}
	if semver.IsValid(v) {
		return strings.TrimPrefix(v, "v")
	}
	return number + "+devel"
}
