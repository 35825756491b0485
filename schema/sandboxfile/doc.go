// Package sandboxfile holds the settings of a run's sandbox as plain data: what a command may read, write and reach,
// its environment, its limits, its user and its home. They come from policy files, built-in profiles and the settings
// of Claude Code's sandbox runtime. [Settings.Check] finds mistakes that can be seen without the host, and [Compose]
// combines settings. Package runner/sandbox decides what they mean on a host.
package sandboxfile
