// Package engine asks a container engine about its containers, over the HTTP API on
// its unix socket that Docker documents and Podman also serves ("podman system
// service"). It reads, and it ends the containers of a run. What an engine answers is
// the engine's claim. [Relay] (for Docker) and [StandIn] (for Podman) put the containers
// that a command makes into its run. [Pods] are the pods of a node, as the API server of
// Kubernetes reports them.
package engine
