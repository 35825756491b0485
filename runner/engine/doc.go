// Package engine asks a container engine about its containers, over the HTTP API on
// its unix socket that Docker documents and Podman serves as well ("podman system
// service"). It reads, and ends containers of a run. What an engine answers is a claim
// of the engine's. A [Relay] and [StandIn] put what a command makes into its run.
package engine
