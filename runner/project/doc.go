// Package project knows which packages a directory holds the source of, and finds later versions of them on this host:
// installed, in a cache, or in the directory itself.
//
// [Of] reads the names and versions from the files that npm, Python's build tools, Cargo, Go, Maven, RubyGems and
// Composer read. [Later] looks where these tools and their package managers keep packages: places.txt has a table. It
// does not find packages that a package manager keeps under other names, as Bazel does. In pnpm's store it finds the
// list of a package's files, and not the files.
package project
