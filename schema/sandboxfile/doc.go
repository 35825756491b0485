// Package sandboxfile is what policy files, built-in profiles and the settings of Claude Code's sandbox runtime say of
// a run's sandbox, as plain data: what a command may read, write and reach, its environment, its limits, its user and
// its home. [Settings.Check] finds what is wrong with settings by themselves, and [Compose] combines them. Package
// sandbox of the runner decides what they mean on a host.
package sandboxfile
