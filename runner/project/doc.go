// Package project knows which packages a directory holds the source of, and finds later versions of them on this host:
// installed, in a cache, or in the directory itself.
//
// [Of] reads the names and versions from the files that npm, Python's build tools, Cargo and Go read. [Later] looks
// where these tools and their package managers keep packages. It does not find packages that a package manager keeps
// under other names, as pnpm and Bazel do in their stores.
package project
