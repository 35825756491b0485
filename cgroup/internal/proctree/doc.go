// Package proctree keeps the processes of a session together where no cgroup is
// writable. A group is then what was started in it, all that descends from
// that, and the orphans that the runner adopts as their subreaper.
//
// The marks by which orphans are recognised are the run id in the environment
// and an otherwise unused resource limit: see limitMark.
package proctree
