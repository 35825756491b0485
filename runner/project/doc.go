// Package project knows which packages a directory is the source of, and finds later versions of them on this host:
// installed, in a cache, or in the directory itself.
//
// [Of] reads the names and versions from what npm, Python's build tools, Cargo and Go read. [Later] looks where these
// and their package managers keep packages. What a package manager keeps under other names, as pnpm and Bazel do in
// their stores, is not found.
package project
