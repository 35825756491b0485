// Package tree finds and watches a cgroup2 directory that somebody else made, with
// all below it: which it is, whether it has processes, and when it has none any more.
// It changes nothing in it, and ends no process. The one thing that it can make is an
// empty directory, for a container that an engine will put there.
package tree
