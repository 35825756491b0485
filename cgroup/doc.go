// Package cgroup keeps the processes of a run together: it starts them inside
// a group of their own, limits and accounts for them, and ends them all.
package cgroup
