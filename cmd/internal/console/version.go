package console

import "runtime/debug"

// Version is release, which the linker sets in released builds, else the module
// version or revision of a build from source.
func Version(release string) string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}
